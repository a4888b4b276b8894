"""Options of commands that work on corrupted images: which corruptions, which severities."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from smoothcert.cli.common_options import load_data
from smoothcert.cli.parser import Several
from smoothcert.cli.progress import say

if TYPE_CHECKING:
    from smoothcert.data import ImageData


def add_corruption_options(parser: argparse.ArgumentParser) -> None:
    """Which of a corrupted set's images."""
    group = parser.add_argument_group("corrupted images (--data mnist-c, cifar10-c, or a folder of them)")
    group.add_argument(
        "--corruption", type=corruption, action=Several, metavar="TYPE ...", help="only these (default: all there are)"
    )
    group.add_argument("--severity", type=int, action=Several, metavar="S ...", help="only these (default: all)")


def corruption(text: str) -> str:
    """Read the name of a corruption: one that is known, or a word that is no file's name, which may be mistyped."""
    from smoothcert.data.corruptions import SUITES

    known = {name for suite in SUITES.values() for name in (*suite.corruptions, *suite.held_out)}
    if text in (*known, "identity") or (text.replace("_", "").isalpha() and not Path(text).exists()):
        return text
    raise argparse.ArgumentTypeError(f"expected the name of a corruption, such as fog, but got {text!r}")


def load_sets(args: argparse.Namespace, default: str | None) -> list[ImageData]:
    """Load the data set that the options name, or of a corrupted one each corruption."""
    from smoothcert.data import find_corrupted
    from smoothcert.errors import UsageError

    found = find_corrupted(args.data, args.data_dir) if args.data else None
    if found is None:
        data = load_data(args, default)
        if args.corruption:
            raise UsageError(f"`--corruption` is for sets of corrupted images, which {data.name} is not.")
        return [data]
    if args.split != "test":
        raise UsageError(f"{found.name} has a test split only.")
    if not (args.corruption or found.available):
        raise UsageError(f"{found.folder} holds corruptions of no mean; choose some with `--corruption`.")
    if not args.corruption and found.missing:
        say(f"{found.name}: no {', '.join(found.missing)} in {found.folder}; going on with the others.")
    return [found.load(name) for name in dict.fromkeys(args.corruption or found.available)]


def choose_rows(args: argparse.Namespace, data: ImageData, shard: tuple[int, int] = (1, 1)) -> list[int]:
    """Return the rows that `--skip`, `--max` and `--severity` leave, or one part of them."""
    from smoothcert.data import select_rows
    from smoothcert.errors import UsageError

    if args.severity and "/" not in data.name:
        raise UsageError(f"`--severity` is for sets of corrupted images, which {data.name} is not.")
    return select_rows(data, args.skip, args.max, shard, args.severity)


def results_suffix(args: argparse.Namespace) -> str:
    """Return what a results file's name says of the severities."""
    return "-severity" + "".join(map(str, sorted(set(args.severity)))) if args.severity else ""
