"""The command `smoothcert list`."""

from __future__ import annotations

import argparse
import fnmatch
import json
import shutil
import sys
from collections.abc import Iterable, Sequence
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
    from smoothcert.training.known_methods import known_methods
    from smoothcert.training.recipes import list_recipes, paper_tables

    names: dict[str, Iterable[str]] = {
        "datasets": sorted((*dataset_names.DIMENSIONS, *dataset_names.REGISTERED)),
        "models": (*model_names.ARCHITECTURES, *model_names.REGISTERED),
        "methods": known_methods(),
        "recipes": list_recipes(),
        "tables": paper_tables(),
        "pretrained": list_pretrained(),
        "normalizations": dataset_names.NORMALIZATIONS,
    }
    if kind not in names:
        raise unknown_name("kind", kind, names)
    return names[kind]


def run(args: argparse.Namespace) -> None:
    """Print the matching names, in a table if there is more to say about them."""
    names = fnmatch.filter(_names(args.kind), args.pattern)
    if not names:
        say(f"No {args.kind} match {args.pattern!r}.")
    if args.json:
        print(json.dumps(names))
    elif names and args.kind == "recipes":
        _print_recipes(names)
    elif names and args.kind == "pretrained":
        _print_pretrained(names)
    else:
        sys.stdout.write("".join(f"{name}\n" for name in names))


def _print_recipes(names: Sequence[str]) -> None:
    from smoothcert.report.sources import paper_places
    from smoothcert.report.tables.paper_numbers import paper_row
    from smoothcert.training.known_methods import method_title
    from smoothcert.training.passes import relative_cost
    from smoothcert.training.recipes import load_recipe

    lines = [["recipe", "method", "sigma", "paper's ACR", "cost"]]
    for name in names:
        config = load_recipe(name)
        row = paper_row(config.dataset, config.sigma, config.method, *paper_places().get(name, (None, "")))
        acr, cost = f"{row.acr:.3f}" if row else "-", f"{relative_cost(config):.1f}x"
        lines.append([name, method_title(config.method), f"{config.sigma:.2f}", acr, cost])
    text = _as_table(lines)
    if sys.stdout.isatty() and max(map(len, text.splitlines())) > shutil.get_terminal_size().columns:
        text = _as_table([[name, *others] for name, _, *others in lines])  # the name contains the method
    sys.stdout.write(text)
    say("cost: forward passes per epoch, as a multiple of Gaussian training.")


def _print_pretrained(names: Sequence[str]) -> None:
    from smoothcert.checkpoints.pretrained import bundled_models
    from smoothcert.report.tables.formats import dataset_title
    from smoothcert.training.known_methods import method_title
    from smoothcert.training.recipes import load_recipe

    lines = [["model", "dataset", "network", "method", "sigma", "ACR", "images"]]
    for name in names:
        config, model = load_recipe(name), bundled_models()[name]
        certified = (f"{model['acr']:.3f}", f"{model['images']:,}") if "acr" in model else ("-", "-")
        about = (dataset_title(config.dataset), config.architecture, method_title(config.method), f"{config.sigma:.2f}")
        lines.append([name, *about, *certified])
    sys.stdout.write(_as_table(lines))


def _as_table(lines: list[list[str]]) -> str:
    """Format lines of cells, the first of which are the titles."""
    from smoothcert.report.tables.formats import Cell, Sheet, to_text

    titles, *rows = lines
    return to_text(Sheet(titles, [[[Cell(text) for text in row] for row in rows]]))
