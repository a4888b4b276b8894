"""The paper's rows as recipes, and its tables as lists of them: TOML files, found by name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from smoothcert.errors import unknown_name
from smoothcert.training.config import TrainConfig, read_config

FOLDER = Path(__file__).with_name("recipe_files")


def list_recipes(pattern: str = "*") -> list[str]:
    """Return the names of the recipes that match a glob.

    >>> list_recipes("mnist-catrs-?.??")
    ['mnist-catrs-0.25', 'mnist-catrs-0.50', 'mnist-catrs-1.00']
    """
    names = sorted(path.name.removesuffix(".toml") for path in FOLDER.glob("*/*.toml"))
    return [name for name in names if fnmatch(name, pattern)]


def load_recipe(name: str, /, **overrides: Any) -> TrainConfig:
    """Return a recipe by its name, or read a TOML file by its path.

    Overrides take the place of single fields of the `TrainConfig`; those of the method's options stand in `options`.

    >>> load_recipe("mnist-consistency-0.50", epochs=10, options={"weight": 2.0}).epochs
    10
    """
    if name.endswith(".toml"):
        return read_config(Path(name), **overrides)
    found = next(FOLDER.glob(f"*/{name}.toml"), None) if name in list_recipes() else None
    if found is None:
        raise unknown_name("recipe", name, list_recipes())
    return read_config(found, **{"name": name, **overrides})


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper: its rows as (recipe, setup in paper.csv), every how many-th test image, and the seeds.

    `paper` is its name there, empty for a table that the paper does not have. `data` names the corrupted set that is
    certified in place of the recipe's own test images.
    """

    title: str
    paper: str
    rows: tuple[tuple[str, str], ...]
    skip: int
    seeds: tuple[int, ...]
    data: str = ""


@cache
def paper_tables() -> Mapping[str, PaperTable]:
    """Return the paper's tables by name."""
    content = tomllib.loads((FOLDER / "tables.toml").read_text(encoding="utf-8"))
    return {
        name: PaperTable(
            table["title"],
            table["paper"],
            tuple((row["recipe"], row.get("setup", "")) for row in table["rows"]),
            table["skip"],
            tuple(table["seeds"]),
            table.get("data", ""),
        )
        for name, table in content.items()
    }
