"""`smoothcert list`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from smoothcert.cli.progress import say


def add_command(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "list",
        help="list datasets, models, methods, recipes, tables or pretrained models",
        description="List the names that other commands accept.",
    )
    kinds = "datasets, models, methods, recipes, tables, pretrained or normalizations"
    parser.add_argument("kind", metavar="KIND", help=kinds)
    parser.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help="glob pattern, such as 'cifar*'")
    parser.add_argument("--json", action="store_true", help="print the output as JSON")
    parser.set_defaults(run=run)


def _list_tables(pattern: str) -> list[str]:
    from fnmatch import filter as matching

    from smoothcert.training.recipes import paper_tables

    return matching(paper_tables(), pattern)


def _list_normalizations(pattern: str) -> list[str]:
    from fnmatch import filter as matching

    from smoothcert.checkpoints.published import NORMALIZATIONS

    return matching(NORMALIZATIONS, pattern)


def _list_others(kind: str, pattern: str) -> list[str]:
    import smoothcert  # imports the package behind a name on first use

    names: list[str] = getattr(smoothcert, f"list_{kind}")(pattern)
    return names


_KINDS: dict[str, Callable[[str], list[str]]] = {
    "datasets": partial(_list_others, "datasets"),
    "models": partial(_list_others, "models"),
    "methods": partial(_list_others, "methods"),
    "recipes": partial(_list_others, "recipes"),
    "tables": _list_tables,
    "pretrained": partial(_list_others, "pretrained"),
    "normalizations": _list_normalizations,
}


def run(args: argparse.Namespace) -> None:
    """Print the matching names."""
    from smoothcert.errors import unknown_name

    if args.kind not in _KINDS:
        raise unknown_name("kind", args.kind, _KINDS)
    names = _KINDS[args.kind](args.pattern)
    if not names:
        say(f"No {args.kind} match {args.pattern!r}.")
    elif args.kind == "recipes" and not args.json:
        _print_recipes(names)
        return
    sys.stdout.write(json.dumps(names) + "\n" if args.json else "".join(f"{name}\n" for name in names))


def _print_recipes(names: Sequence[str]) -> None:
    """Print the recipes with their method, noise level, the paper's ACR and their cost."""
    from smoothcert.report.tables.formats import Cell, Sheet, to_text

    titles = ["recipe", "method", "sigma", "paper's ACR", "cost"]
    lines = [[Cell(text) for text in _recipe_texts(name)] for name in names]
    sys.stdout.write(to_text(Sheet(titles, [lines])))
    say("cost: forward passes per epoch, as a multiple of Gaussian training.")


def _recipe_texts(name: str) -> list[str]:
    from smoothcert.report.sources import paper_places
    from smoothcert.report.tables.paper_numbers import METHODS, paper_row
    from smoothcert.training.passes import relative_cost
    from smoothcert.training.recipes import load_recipe

    config = load_recipe(name)
    row = paper_row(config.dataset, config.sigma, config.method, *paper_places().get(name, (None, "")))
    acr = f"{row.acr:.3f}" if row else "-"
    return [
        name,
        METHODS.get(config.method, config.method),
        f"{config.sigma:.2f}",
        acr,
        f"{relative_cost(config):.1f}x",
    ]
