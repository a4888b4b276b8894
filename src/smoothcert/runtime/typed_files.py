"""Read JSON and TOML files and check the types of their values.

All JSON, TOML and file metadata passes through `check_type`. A value of a wrong type or out of range raises an error
that names the file and the field. A file that is too large or nested too deeply is also an error.

The argument `kind` is a type annotation: a plain class, `X | Y`, `list[X]`, `dict[str, X]`, `Literal`, a TypedDict, or
`Annotated[X, Between(low, high)]`. Unknown keys of a TypedDict are allowed: newer versions might write additional keys.
"""

from __future__ import annotations

import json
import tomllib
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from smoothcert.errors import SmoothcertError, first_line, quote
from smoothcert.runtime.bounded_files import read_text

_LARGEST = 64 << 20  # bytes; the sidecar of a million images, with their indices, takes 8 MB
_DEEPEST = 32
_MISSING = object()
_WORDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number", dict: "a table", list: "a list"}


@dataclass(frozen=True)
class Between:
    """The range of a number, both ends included; NaN is never inside."""

    low: float
    high: float
    words: str = ""

    def __str__(self) -> str:
        return self.words or f"from {self.low:g} to {self.high:g}"


Json = dict[str, Any]
"""A JSON object."""
Count = Annotated[int, Between(1, 2**53, ">= 1")]
"""A count, at least one."""
Index = Annotated[int, Between(0, 2**53, ">= 0")]
"""A count or a position, at least zero."""
Positive = Annotated[float, Between(1e-300, 1e300, "> 0")]
"""A finite number > 0."""
Seconds = Annotated[float, Between(0, 1e12, ">= 0")]
"""A time in seconds."""


def check_type(value: Any, kind: Any, source: object) -> None:
    """Raise SmoothcertError, naming `source` and the wrong field, unless a value matches `kind`.

    >>> check_type({"n": 3}, dict[str, Count], "a.json")
    >>> check_type({"n": 0}, dict[str, Count], "a.json")
    Traceback (most recent call last):
    smoothcert.errors.SmoothcertError: a.json: expected `n` to be a whole number >= 1, but got 0.
    """
    wrong = next(_wrong_parts(value, kind, ""), None)
    if wrong is not None:
        place, got, expected = wrong
        shown = "nothing" if got is _MISSING else quote(got)
        content = f"`{place}`" if place else "its content"
        raise SmoothcertError(f"{source}: expected {content} to be {_name(expected)}, but got {shown}.")


def _wrong_parts(value: Any, kind: Any, field: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield (field, value, expected kind) for every part that does not match its kind."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return
    if origin is Annotated:
        inner, *ranges = arguments
        if any(_wrong_parts(value, inner, field)) or not all(part.low <= value <= part.high for part in ranges):
            yield field, value, kind
    elif origin in (Union, types.UnionType):
        if all(any(_wrong_parts(value, choice, field)) for choice in arguments):
            yield field, value, kind
    elif origin is Literal:
        if value not in arguments:
            yield field, value, kind
    elif is_typeddict(kind):
        if not isinstance(value, dict):
            yield field, value, dict
            return
        hints = get_type_hints(kind, include_extras=True)
        for key in kind.__required_keys__ - value.keys():
            yield _join(field, key), _MISSING, hints[key]
        for key in value.keys() & hints.keys():
            yield from _wrong_parts(value[key], hints[key], _join(field, key))
    elif origin in (list, dict):
        if not isinstance(value, origin):
            yield field, value, origin
            return
        if all(type(item) is arguments[-1] for item in (value if origin is list else value.values())):
            return  # a shortcut, for lists such as the indices of a million images
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _wrong_parts(item, arguments[-1], _join(field, str(key)))
    else:
        numeric = kind is float and isinstance(value, int)
        if isinstance(value, bool) is not (kind is bool) or not (numeric or isinstance(value, kind)):
            yield field, value, kind


def _join(field: str, key: str) -> str:
    name = key if len(key) <= 40 else key[:40] + "..."
    return f"{field}.{name}" if field else name


def _name(kind: Any) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return " ".join([_name(arguments[0]), *(str(part) for part in arguments[1:])])
    if origin in (Union, types.UnionType):
        return " or ".join(_name(choice) for choice in arguments)
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if kind is type(None):
        return "null"
    return _WORDS.get(dict if is_typeddict(kind) else origin or kind, getattr(kind, "__name__", str(kind)))


def read_json(path: Path, kind: Any) -> Any:
    """Read a JSON file; its content must match `kind`."""
    return parse_json(_read_small(path), kind, path)


def read_json_lines(path: Path, kind: Any) -> list[Any]:
    """Read a file with one JSON value per line. Every value must match `kind`; blank lines are skipped."""
    lines = _read_small(path).split("\n")
    return [parse_json(line, kind, f"{path}, line {i}") for i, line in enumerate(lines, 1) if line.strip()]


def parse_json(text: str, kind: Any, source: object) -> Any:
    """Parse a JSON text; its value must match `kind`. Errors name `source`."""
    return _parse(json.loads, text, "JSON", kind, source)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    content: dict[str, Any] = _parse(tomllib.loads, _read_small(path), "TOML", dict[str, Any], path)
    return content


def _parse(loads: Callable[[str], Any], text: str, language: str, kind: Any, source: object) -> Any:
    try:
        value = loads(text)
    except RecursionError:
        raise _too_deep(source) from None
    except ValueError as error:  # invalid JSON or TOML, or an integer with thousands of digits
        raise SmoothcertError(f"{source} cannot be read as {language} ({first_line(error)}).") from error
    _check_depth(value, source)
    check_type(value, kind, source)
    return value


def _read_small(path: Path) -> str:
    try:
        size = path.stat().st_size
    except (OSError, ValueError) as error:
        raise SmoothcertError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}).") from error
    if size > _LARGEST:
        raise SmoothcertError(f"{path}: expected at most {_LARGEST >> 20} MiB, but got {size / 2**20:,.0f} MiB.")
    return read_text(path)


def _check_depth(value: Any, source: object) -> None:
    level = [value]
    for _ in range(_DEEPEST):
        parts = [part for part in level if isinstance(part, Mapping | list)]
        level = [item for part in parts for item in (part.values() if isinstance(part, Mapping) else part)]
        if not level:
            return
    raise _too_deep(source)


def _too_deep(source: object) -> SmoothcertError:
    return SmoothcertError(f"{source}: expected at most {_DEEPEST} levels of lists and tables, but got more.")
