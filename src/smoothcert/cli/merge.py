"""The command `smoothcert merge`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from smoothcert.cli.progress import say
from smoothcert.cli.report import add_unverified
from smoothcert.errors import counted


def add_command(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "merge",
        help="merge the results of several shards",
        description="Merge results files that differ only in their images into one file, ordered by image.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="results files to merge")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="results file to write")
    add_unverified(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Merge the files."""
    from smoothcert.results.merge import merge_results

    count = merge_results(args.files, args.out, unverified=args.unverified)
    say(f"Merged {counted(len(args.files), 'file')} with {counted(count, 'image')}: {args.out}")
