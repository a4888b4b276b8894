"""Describe the training methods, from loaded classes or else from a JSON file, without importing torch."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from smoothcert.errors import UsageError
from smoothcert.training.settings import RunSettings

TABLE = Path(__file__).with_name("known_methods.json")


@dataclasses.dataclass(frozen=True)
class KnownMethod:
    """A method as described to code without torch. `options` maps each option to its default and help."""

    title: str
    training_passes: int
    plain_options: Mapping[str, Any]
    options: Mapping[str, Mapping[str, Any]]

    def is_plain(self, options: Mapping[str, Any]) -> bool:
        """Return True if, with these options, a step is one training pass without an attack."""
        return bool(self.plain_options) and self.plain_options.items() <= options.items()

    def defaults(self) -> dict[str, Any]:
        """Return the default of each option."""
        return {name: option["default"] for name, option in self.options.items()}


def known_methods() -> Mapping[str, KnownMethod]:
    """Return the methods by name, including registered ones.

    Importing `smoothcert.methods` requires torch. Methods can be registered only after it is imported, so until then
    the JSON file, which describes the package's own methods, is complete.

    >>> known_methods()["consistency"].defaults()
    {'num_noises': 2, 'weight': 10.0, 'entropy_weight': 0.5}
    """
    loaded = getattr(sys.modules.get("smoothcert.methods"), "METHODS", None)
    return _own_methods() if loaded is None else {name: _describe(method) for name, method in loaded.items()}


def method_title(method: str | None, default: str = "") -> str:
    """Return the display name of a method; for one that has no title, `default` or else its own name.

    >>> method_title("first-failure"), method_title("mine"), method_title(None, "a run")
    ('First failure', 'mine', 'a run')
    """
    known = known_methods().get(method or "")
    return (known.title if known else "") or default or method or ""


def option_type(default: Any) -> type:
    """Return the type of an option with this default. A default of None means an optional int."""
    return int if default is None else type(default)


@cache
def _own_methods() -> Mapping[str, KnownMethod]:
    return {name: KnownMethod(**facts) for name, facts in json.loads(TABLE.read_text(encoding="utf-8")).items()}


def _describe(method: Any) -> KnownMethod:
    options = {
        field.name: {"default": field.default, "help": field.metadata.get("help", "option of this method")}
        for field in dataclasses.fields(method)
        if field.name != "sigma"
    }
    if taken := options.keys() & {field.name for field in dataclasses.fields(RunSettings)}:
        raise UsageError(f"Option {min(taken)} of method {method.name} has the name of a setting; rename it.")
    title = vars(method).get("title", "")  # not inherited
    return KnownMethod(title, method.training_passes, method.plain_options, options)
