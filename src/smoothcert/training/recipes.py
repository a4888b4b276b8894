"""Recipes (TOML files with the configurations of runs) and tables of results, which list the recipes of their rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from smoothcert.errors import takes, unknown_name
from smoothcert.runtime.typed_files import read_toml
from smoothcert.training.config import TrainConfig, read_config

FOLDER = Path(__file__).with_name("recipe_files")


@takes(pattern=str)
def list_recipes(pattern: str = "*") -> list[str]:
    """Return the names of the recipes that match a glob.

    Args:
        pattern: A glob such as `"mnist-*"`.

    Returns:
        The sorted names, which `load_recipe` accepts.

    Example:
        >>> list_recipes("mnist-catrs-?.??")
        ['mnist-catrs-0.25', 'mnist-catrs-0.50', 'mnist-catrs-1.00']
    """
    names = sorted(path.name.removesuffix(".toml") for path in FOLDER.glob("*/*.toml"))
    return [name for name in names if fnmatch(name, pattern)]


@takes(name=(str, Path))
def load_recipe(name: str | os.PathLike[str], /, **overrides: Any) -> TrainConfig:
    """Load a recipe by its name, or a TOML file by its path.

    Args:
        name: The name of a recipe (see `list_recipes`), or the path of a TOML file: a string that ends in
            `.toml`, or a `Path`.
        **overrides: Fields of `TrainConfig` to replace. `options` is merged into the recipe's options, unless
            `method` changes.

    Returns:
        The configuration, for `train_run`.

    Raises:
        UsageError: If there is no such recipe or field, or if a value is invalid.
        SmoothcertError: If the file cannot be read.

    Example:
        >>> config = load_recipe("mnist-consistency-0.50", epochs=10, options={"weight": 2.0})
        >>> config.epochs, config.options["weight"]
        (10, 2.0)
    """
    if not isinstance(name, str) or name.endswith(".toml"):
        return read_config(Path(name), **overrides)
    if name not in list_recipes():
        raise unknown_name("recipe", name, list_recipes())
    return read_config(next(FOLDER.glob(f"*/{name}.toml")), **{"name": name, **overrides})


@dataclass(frozen=True)
class PaperTable:
    """A table that `smoothcert reproduce` computes: one of the paper's tables or an additional table.

    `rows` are pairs (recipe, name of the row in paper.csv). Every `skip`-th test image is certified. `paper` is the
    table's name in paper.csv, or empty for an additional table. `data` names a corrupted dataset to certify instead of
    the test images of the recipe's dataset.
    """

    title: str
    paper: str
    rows: tuple[tuple[str, str], ...]
    skip: int
    seeds: Sequence[int]
    data: str = ""


@cache
def paper_tables() -> Mapping[str, PaperTable]:
    """Return all tables, keyed by name."""
    content = read_toml(FOLDER / "tables.toml")
    return {
        name: PaperTable(**table | {"rows": tuple((row["recipe"], row.get("setup", "")) for row in table["rows"])})
        for name, table in content.items()
    }
