"""Training methods, one file each. `base` defines the contract that every method implements."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any

from smoothcert.errors import UsageError, quote, suggest, takes, unknown_name
from smoothcert.methods.base import Draws, Method, StepOutput
from smoothcert.methods.catrs import CatRs
from smoothcert.methods.consistency import Consistency, SmoothAdvConsistency
from smoothcert.methods.first_failure import FirstFailure
from smoothcert.methods.gaussian import Gaussian
from smoothcert.methods.macer import Macer
from smoothcert.methods.smoothadv import SmoothAdv
from smoothcert.methods.smoothmix import SmoothMix
from smoothcert.methods.stability import Stability

_OWN = (Gaussian, Stability, SmoothAdv, Macer, Consistency, SmoothAdvConsistency, SmoothMix, CatRs, FirstFailure)
METHODS: dict[str, type[Method]] = {method.name: method for method in _OWN}

__all__ = ["METHODS", "Draws", "Method", "StepOutput", "create_method", "list_methods", "register_method"]


def register_method(method: type[Method]) -> type[Method]:
    """Register a method of your own under its `name`, for this process.

    The method can then be used like a built-in one, in `train` and in `train_run`. On the command line,
    `--plugin FILE` loads the file that registers the method, and each option of the method becomes a flag.

    Args:
        method: A frozen dataclass that extends `Method` (see `smoothcert.methods.base`).

    Returns:
        `method`, so that this function can be used as a decorator.

    Raises:
        UsageError: If `method` is not such a dataclass, its name is missing or taken, or an option has no default.

    Example:
        >>> @dataclasses.dataclass(frozen=True, kw_only=True)
        ... class Clean(Method):
        ...     name = "clean"
        ...     def step(self, model, x, y, *, draws, epoch, soft=None):
        ...         return StepOutput(-model(x).log_softmax(dim=1).gather(1, y[:, None]).mean())
        >>> register_method(Clean)(sigma=0.5) == create_method("clean", 0.5)
        True
        >>> del METHODS["clean"]
    """
    if not (isinstance(method, type) and issubclass(method, Method) and "__dataclass_params__" in vars(method)):
        raise UsageError(f"Expected a dataclass that extends Method, but got {quote(method)}.")
    name = getattr(method, "name", None)
    if not isinstance(name, str) or not name:
        raise UsageError(f"{method.__name__} needs a class attribute called name, a non-empty string.")
    for field in dataclasses.fields(method):
        if field.name != "sigma" and field.default is dataclasses.MISSING:
            raise UsageError(f"Option {field.name} of {method.__name__} needs a default, which also sets its type.")
    known = METHODS.get(name, method)
    if known.__qualname__ != method.__qualname__ or known.__module__ != method.__module__:
        raise UsageError(f"There is already a method {name!r}; choose another name for {method.__name__}.")
    METHODS[name] = method
    return method


@takes(pattern=str)
def list_methods(pattern: str = "*") -> list[str]:
    """Return the names of the methods that match a pattern.

    Args:
        pattern: A glob such as `"smooth*"`.

    Returns:
        The names; methods added by `register_method` come last.

    Example:
        >>> list_methods("smooth*")
        ['smoothadv', 'smoothadv-consistency', 'smoothmix']
    """
    return [name for name in METHODS if fnmatch(name, pattern)]


@takes(name=str, options=(Mapping, type(None)))
def create_method(name: str, sigma: float, options: Mapping[str, Any] | None = None) -> Method:
    """Create a method by name.

    Args:
        name: A name from `list_methods`.
        sigma: The standard deviation of the noise.
        options: Hyperparameters that differ from the method's defaults.

    Returns:
        The method.

    Raises:
        UsageError: If there is no such method or option, or a value is invalid.

    Example:
        >>> create_method("consistency", 0.5, {"weight": 5.0})
        Consistency(sigma=0.5, num_noises=2, weight=5.0, entropy_weight=0.5)
    """
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    options = dict(options or {})
    fields = {field.name: field for field in dataclasses.fields(METHODS[name]) if field.name != "sigma"}
    unknown = sorted(options.keys() - fields.keys())
    if unknown:
        wrong, known = (", ".join(f"`{option}`" for option in names) for names in (unknown, sorted(fields)))
        near = suggest(unknown[0], fields).replace("'", "`")  # the command line names flags instead
        raise UsageError(f"Method {name} has no option {wrong}{near} Its options: {known or 'none'}.")
    for key, value in options.items():
        default = fields[key].default
        kind = int if default is None else type(default)
        if not (type(value) is kind or (kind is float and type(value) is int) or value is default is None):
            raise UsageError(f"Expected `{key}` to be of type {kind.__name__}, but got {quote(value)}.")
    return METHODS[name](sigma=sigma, **options)
