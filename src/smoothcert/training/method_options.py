"""Read the options of training methods from loaded classes, or else from a JSON file, without importing torch."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Options = Mapping[str, Mapping[str, Any]]
"""Default and help of each option, keyed by its name."""

TABLE = Path(__file__).with_name("method_options.json")


def known_methods() -> Mapping[str, Options]:
    """Return the options of each method, including registered ones.

    Importing `smoothcert.methods` requires torch. Methods can be registered only after it is imported, so until then
    the JSON file, which describes the package's own methods, is complete.

    >>> known_methods()["consistency"]["weight"]["default"]
    10.0
    """
    loaded = sys.modules.get("smoothcert.methods")
    if loaded is None:
        table: dict[str, Options] = json.loads(TABLE.read_text(encoding="utf-8"))
        return table
    return {name: _describe(method) for name, method in loaded.METHODS.items()}


def option_type(default: Any) -> type:
    """Return the type of an option with this default. A default of None means an optional int."""
    return int if default is None else type(default)


def _describe(method: Any) -> Options:
    return {
        field.name: {"default": field.default, "help": field.metadata.get("help", "option of this method")}
        for field in dataclasses.fields(method)
        if field.name != "sigma"
    }
