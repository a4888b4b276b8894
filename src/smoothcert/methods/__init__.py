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

__all__ = ["METHODS", "Draws", "Method", "StepOutput", "create_method", "list_methods"]


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
