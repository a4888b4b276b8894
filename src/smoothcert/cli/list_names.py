"""The command `smoothcert list`."""

from __future__ import annotations

import argparse
import fnmatch
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from smoothcert.cli.progress import say
from smoothcert.errors import unknown_name


def add_command(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "list",
        help="list datasets, models, methods, recipes, tables, pretrained models or normalizations",
        description="List the names that other commands accept.",
    )
    kinds = "datasets, models, methods, recipes, tables, pretrained or normalizations"
    parser.add_argument("kind", metavar="KIND", help=kinds)
    parser.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help="glob pattern, such as 'cifar*'")
    parser.add_argument("--json", action="store_true", help="print the output as JSON")
    parser.set_defaults(run=run)


def _names(kind: str) -> Iterable[str]:
    """Return all names of a kind, without importing torch."""
    from smoothcert import dataset_names, model_names
    from smoothcert.checkpoints.pretrained import list_pretrained
    from smoothcert.training.method_options import known_methods
    from smoothcert.training.recipes import list_recipes, paper_tables

    names: dict[str, Callable[[], Iterable[str]]] = {
        "datasets": lambda: sorted((*dataset_names.DIMENSIONS, *dataset_names.REGISTERED)),
        "models": lambda: (*model_names.ARCHITECTURES, *model_names.REGISTERED),
        "methods": known_methods,
        "recipes": list_recipes,
        "tables": paper_tables,
        "pretrained": list_pretrained,
        "normalizations": lambda: dataset_names.NORMALIZATIONS,
    }
    if kind not in names:
        raise unknown_name("kind", kind, names)
    return names[kind]()


def run(args: argparse.Namespace) -> None:
    """Print the matching names."""
    names = fnmatch.filter(_names(args.kind), args.pattern)
    if not names:
        say(f"No {args.kind} match {args.pattern!r}.")
    elif args.kind in _TABLES and not args.json:
        _TABLES[args.kind](names)
        return
    sys.stdout.write(json.dumps(names) + "\n" if args.json else "".join(f"{name}\n" for name in names))


def _print_recipes(names: Sequence[str]) -> None:
    """Print the recipes with method, noise level, the CAT-RS paper's ACR, and training cost."""
    titles = ["recipe", "method", "sigma", "paper's ACR", "cost"]
    _print_table(titles, map(_recipe_texts, names), spare="method")  # the recipe's name contains the method
    say("cost: forward passes per epoch, as a multiple of Gaussian training.")


def _print_pretrained(names: Sequence[str]) -> None:
    """Print the bundled models with dataset, network, method, noise level, ACR and number of certified images."""
    _print_table(["model", "dataset", "network", "method", "sigma", "ACR", "images"], map(_pretrained_texts, names))


_TABLES: dict[str, Callable[[Sequence[str]], None]] = {"recipes": _print_recipes, "pretrained": _print_pretrained}


def _print_table(titles: list[str], rows: Iterable[Sequence[str]], *, spare: str = "") -> None:
    """Print a table, on a terminal that is too narrow without the column `spare`."""
    from smoothcert.report.tables.formats import Cell, Sheet, to_text

    def text(left_out: str = "") -> str:
        shown = [place for place, title in enumerate(titles) if title != left_out]
        lines = [[Cell(row[place]) for place in shown] for row in table]
        return to_text(Sheet([titles[place] for place in shown], [lines]))

    table = list(rows)
    printed = text()
    if sys.stdout.isatty() and max(map(len, printed.splitlines())) > shutil.get_terminal_size().columns:
        printed = text(spare)
    sys.stdout.write(printed)


def _recipe_texts(name: str) -> list[str]:
    from smoothcert.report.sources import paper_places
    from smoothcert.report.tables.paper_numbers import method_title, paper_row
    from smoothcert.training.passes import relative_cost
    from smoothcert.training.recipes import load_recipe

    config = load_recipe(name)
    row = paper_row(config.dataset, config.sigma, config.method, *paper_places().get(name, (None, "")))
    acr = f"{row.acr:.3f}" if row else "-"
    return [
        name,
        method_title(config.method),
        f"{config.sigma:.2f}",
        acr,
        f"{relative_cost(config):.1f}x",
    ]


def _pretrained_texts(name: str) -> list[str]:
    from smoothcert.checkpoints.pretrained import bundled_models
    from smoothcert.report.tables.formats import dataset_title
    from smoothcert.report.tables.paper_numbers import method_title
    from smoothcert.training.recipes import load_recipe

    config, model = load_recipe(name), bundled_models()[name]
    acr, images = (f"{model['acr']:.3f}", f"{model['images']:,}") if "acr" in model else ("-", "-")
    method = method_title(config.method)
    return [name, dataset_title(config.dataset), config.architecture, method, f"{config.sigma:.2f}", acr, images]
