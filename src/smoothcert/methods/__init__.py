"""The paper's training methods, each one file under one contract."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any

from smoothcert.errors import UsageError, unknown_name
from smoothcert.methods.base import Draws, Method, StepOutput
from smoothcert.methods.catrs import CatRs
from smoothcert.methods.consistency import Consistency, SmoothAdvConsistency
from smoothcert.methods.gaussian import Gaussian
from smoothcert.methods.macer import Macer
from smoothcert.methods.smoothadv import SmoothAdv
from smoothcert.methods.smoothmix import SmoothMix
from smoothcert.methods.stability import Stability

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (Gaussian, Stability, SmoothAdv, Macer, Consistency, SmoothAdvConsistency, SmoothMix, CatRs)
}

__all__ = ["METHODS", "Draws", "Method", "StepOutput", "create_method", "list_methods", "register_method"]


def register_method(method: type[Method]) -> type[Method]:
    """Make a method of your own known by its `name`: a decorator for a frozen dataclass that extends `Method`.

    From then on, and in this process, it is trained like ours: by `train_run`, and by the command line where a script
    calls `smoothcert.cli.main` itself, with a flag for each of its options.
    """
    if not (isinstance(method, type) and issubclass(method, Method) and "__dataclass_params__" in vars(method)):
        raise UsageError(f"Expected a dataclass that extends Method, but got {method!r}.")
    name = getattr(method, "name", None)
    if not isinstance(name, str) or not name:
        raise UsageError(f"{method.__name__} needs a class attribute `name`, which recipes call it by.")
    for field in dataclasses.fields(method):
        if field.name != "sigma" and field.default is dataclasses.MISSING:
            raise UsageError(f"Option `{field.name}` of {method.__name__} needs a default, which also tells its type.")
    known = METHODS.get(name, method)
    if known.__qualname__ != method.__qualname__ or known.__module__ != method.__module__:
        raise UsageError(f"There is a method {name!r} already; choose another name for {method.__name__}.")
    METHODS[name] = method
    return method


def list_methods(pattern: str = "*") -> list[str]:
    """Return the names of the methods that match a glob.

    >>> list_methods("smooth*")
    ['smoothadv', 'smoothadv-consistency', 'smoothmix']
    """
    return [name for name in METHODS if fnmatch(name, pattern)]


def create_method(name: str, sigma: float, options: Mapping[str, Any] | None = None) -> Method:
    """Create a method from its name, the noise level and its own hyperparameters.

    >>> create_method("consistency", 0.5, {"weight": 5.0})
    Consistency(sigma=0.5, num_noises=2, weight=5.0, entropy_weight=0.5)
    """
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    known = {field.name for field in dataclasses.fields(METHODS[name])} - {"sigma"}
    foreign = sorted(set(options or ()) - known)
    if foreign:
        has = ", ".join(sorted(known)) or "none"
        raise UsageError(f"Method {name} has no option {', '.join(foreign)}; its options: {has}.")
    for field in dataclasses.fields(METHODS[name]):
        value, kind = (options or {}).get(field.name), int if field.default is None else type(field.default)
        if value is not None and not (type(value) is kind or (kind is float and type(value) is int)):
            raise UsageError(f"`--{field.name.replace('_', '-')}` must be of type {kind.__name__}, got {value!r}.")
    return METHODS[name](sigma=sigma, **dict(options or {}))
