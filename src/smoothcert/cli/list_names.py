"""`smoothcert list`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
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


def _kinds() -> dict[str, Callable[[str], list[str]]]:
    from fnmatch import filter as matching

    from smoothcert.checkpoints.pretrained import list_pretrained
    from smoothcert.checkpoints.published import NORMALIZATIONS
    from smoothcert.data import list_datasets
    from smoothcert.methods import list_methods
    from smoothcert.models import list_models
    from smoothcert.training.recipes import list_recipes, paper_tables

    return {
        "datasets": list_datasets,
        "models": list_models,
        "methods": list_methods,
        "recipes": list_recipes,
        "tables": lambda pattern: matching(paper_tables(), pattern),
        "pretrained": list_pretrained,
        "normalizations": lambda pattern: matching(NORMALIZATIONS, pattern),
    }


def run(args: argparse.Namespace) -> None:
    """Print the matching names."""
    from smoothcert.errors import unknown_name

    kinds = _kinds()
    if args.kind not in kinds:
        raise unknown_name("kind", args.kind, kinds)
    names = kinds[args.kind](args.pattern)
    if not names:
        say(f"No {args.kind} match {args.pattern!r}.")
    sys.stdout.write(json.dumps(names) + "\n" if args.json else "".join(f"{name}\n" for name in names))
