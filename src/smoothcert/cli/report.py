"""`smoothcert report` and `smoothcert merge`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.options import fraction
from smoothcert.cli.terminal import say

if TYPE_CHECKING:
    from smoothcert.report.table import Table


def add_commands(commands: Any) -> None:
    """Add the commands that read results."""
    report = commands.add_parser(
        "report",
        help="print the table of several results",
        description="Print the paper's table: ACR, its standard error, and certified accuracy in percent by radius. "
        "A file without a sidecar is told by its name, METHOD-SIGMA.tsv, or by --dataset and --sigma.",
    )
    report.add_argument("files", nargs="+", metavar="[NAME=]FILE", help="results files, each with a name if you like")
    report.add_argument("--radii", type=float, nargs="+", metavar="R", help="radii (default: the paper's grid)")
    report.add_argument(
        "--linf", type=fraction, nargs="+", default=(), metavar="EPS", help="l_inf radii, such as 2/255"
    )
    report.add_argument("--baseline", metavar="NAME", help="compare ACR with this result, on the images both have")
    report.add_argument("--paper", action="store_true", help="set the paper's own numbers beside ours")
    report.add_argument("--dataset", help="data set of files that do not say it")
    report.add_argument("--sigma", type=float, help="noise level of files that do not say it")
    report.add_argument("--json", action="store_true", help="print everything as JSON")
    report.add_argument(
        "--out",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="write to .md, .tex, .csv, .json or .txt too",
    )
    report.set_defaults(run=run_report)
    merge = commands.add_parser(
        "merge",
        help="join the results of several shards",
        description="Join results files that differ in their images alone into one, ordered by image.",
    )
    merge.add_argument("files", nargs="+", type=Path, metavar="FILE")
    merge.add_argument("--out", type=Path, required=True, metavar="FILE")
    merge.set_defaults(run=run_merge)


def run_report(args: argparse.Namespace) -> None:
    """Print the table, and write it where asked."""
    print_table(
        args.files,
        as_json=args.json,
        outputs=args.out,
        about={"dataset": args.dataset, "sigma": args.sigma},
        radii=args.radii,
        linf=args.linf,
        baseline=args.baseline,
        paper=args.paper,
    )


def print_table(
    files: Sequence[str],
    *,
    as_json: bool = False,
    outputs: Sequence[Path] = (),
    about: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """Print the table of results files on stdout, and write it to files by their extension."""
    from smoothcert.names import canonical_name
    from smoothcert.report.formats import to_json_text, to_text
    from smoothcert.report.table import build_table, describe
    from smoothcert.results import read_results

    check_outputs(outputs)
    given = {key: value for key, value in (about or {}).items() if value is not None}
    if "dataset" in given:
        given["dataset"] = canonical_name(given["dataset"])
    entries = []
    beside = (".counts.tsv", ".looks.tsv")  # a glob takes them too
    shown = [text for text in files if not text.removesuffix(".gz").endswith(beside)]
    for text in shown or files:
        name, equals, path = text.partition("=")
        if not equals or Path(text).exists():
            name, path = "", text
        entries.append(describe(read_results(path), name or None, **given))
    table = build_table(entries, **options)
    write_outputs(table, outputs)
    sys.stdout.write(to_json_text(table) if as_json else to_text(table))


def check_outputs(outputs: Sequence[Path]) -> None:
    """Refuse a file whose extension says no format."""
    from smoothcert.errors import unknown_name
    from smoothcert.report.formats import FORMATS

    for out in outputs:
        if out.suffix not in FORMATS:
            raise unknown_name("extension", out.suffix, FORMATS)


def write_outputs(table: Table, outputs: Sequence[Path]) -> None:
    """Write a table to files, each in the format of its extension."""
    from smoothcert.report.formats import FORMATS
    from smoothcert.storage import write_text

    for out in outputs:
        write_text(out, FORMATS[out.suffix](table))
        say(f"Wrote {out}")


def run_merge(args: argparse.Namespace) -> None:
    """Join shards."""
    from smoothcert.merging import merge_results

    count = merge_results(args.files, args.out)
    say(f"Joined {len(args.files)} files, {count:,} images: {args.out}")
