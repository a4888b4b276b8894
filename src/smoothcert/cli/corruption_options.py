"""Options that select corruptions and severities, and the images that they select."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from smoothcert.cli.common_options import load_data
from smoothcert.cli.parser import add_several
from smoothcert.cli.progress import say

if TYPE_CHECKING:
    from smoothcert.data import ImageData


def add_corruption_options(parser: argparse.ArgumentParser) -> None:
    """Add `--corruption` and `--severity`."""
    group = parser.add_argument_group("corrupted images (--data mnist-c, cifar10-c, or a folder of such images)")
    add_several(group, "--corruption", metavar="TYPE", help="only these corruptions (default: all available)")
    add_several(group, "--severity", type=int, metavar="S", help="only these severities (default: all)")


def load_datasets(args: argparse.Namespace, default: str | None) -> list[ImageData]:
    """Load the dataset that the options name; for a corrupted one, a dataset per corruption."""
    from smoothcert.data import find_corrupted
    from smoothcert.errors import UsageError

    corrupted = find_corrupted(args.data, args.data_dir) if args.data else None
    if corrupted is None:
        data = load_data(args, default)
        if args.corruption:
            raise UsageError(f"`--corruption` requires a corrupted dataset, but {data.name} is not corrupted.")
        return [data]
    if args.split != "test":
        raise UsageError(f"{corrupted.name} has only a test split.")
    if not (args.corruption or corrupted.available):
        raise UsageError(f"{corrupted.folder} holds only held-out corruptions; choose some with `--corruption`.")
    if not args.corruption and corrupted.missing:
        say(f"{corrupted.name}: no {', '.join(corrupted.missing)} in {corrupted.folder}; using the others.")
    return [corrupted.load(name) for name in dict.fromkeys(args.corruption or corrupted.available)]


def select_images(args: argparse.Namespace, data: ImageData, shard: tuple[int, int] = (1, 1)) -> list[int]:
    """Return the indices of the images that `--skip`, `--max`, `--severity` and a shard select."""
    from smoothcert.data import select_rows
    from smoothcert.errors import UsageError

    if args.severity and "/" not in data.name:
        raise UsageError(f"`--severity` requires a corrupted dataset, but {data.name} is not corrupted.")
    return select_rows(data, args.skip, args.max, shard, args.severity)


def severity_suffix(args: argparse.Namespace) -> str:
    """Return the part of a results file's name that lists the severities."""
    return "-severity" + "".join(map(str, sorted(set(args.severity)))) if args.severity else ""
