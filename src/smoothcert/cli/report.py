"""`smoothcert report` and `smoothcert merge`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.options import fraction
from smoothcert.cli.report_page import add_page_options, write_page
from smoothcert.cli.terminal import say

if TYPE_CHECKING:
    from smoothcert.report.corrupted import CorruptedResults
    from smoothcert.report.sources import Findings
    from smoothcert.report.table import Table


def add_commands(commands: Any) -> None:
    """Add the commands that read results."""
    report = commands.add_parser(
        "report",
        help="print the table of several results",
        description="Print the paper's table: ACR, its standard error, and certified accuracy in percent by radius. "
        "A file without a sidecar is told by its name, METHOD-SIGMA.tsv, or by --dataset and --sigma.",
    )
    report.add_argument(
        "files",
        nargs="+",
        metavar="[NAME=]RUN",
        help="results files, run folders or folders of them",
    )
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
    add_page_options(report)
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
    """Print the table, and write it, the page and the figures where asked."""
    found, table = print_table(
        args.files,
        as_json=args.json,
        outputs=args.out,
        about={"dataset": args.dataset, "sigma": args.sigma},
        radii=args.radii,
        linf=args.linf,
        baseline=args.baseline,
        paper=args.paper,
    )
    write_page(args, found, table)


def print_table(
    files: Sequence[str],
    *,
    as_json: bool = False,
    outputs: Sequence[Path] = (),
    about: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Findings, Table | None]:
    """Print the tables of results on stdout, write them to files by their extension, and return what was read."""
    from smoothcert.cli.rich_table import show_table
    from smoothcert.names import canonical_name
    from smoothcert.report.formats import to_json_text, to_text
    from smoothcert.report.sources import read_findings
    from smoothcert.report.table import build_table

    check_outputs(outputs)
    given = {key: value for key, value in (about or {}).items() if value is not None}
    if "dataset" in given:
        given["dataset"] = canonical_name(given["dataset"])
    found = read_findings(files, **given)
    if found.corrupted:
        print_corruptions(found.corrupted, as_json=as_json, outputs=outputs, paper=options.get("paper", False))
    if not found.listed:
        return found, None
    table = build_table([run.entry for run in found.listed], **options)
    write_outputs(table, outputs)
    if as_json or not (sys.stdout.isatty() and show_table(table)):
        sys.stdout.write(to_json_text(table) if as_json else to_text(table))
    return found, table


def print_corruptions(
    entries: Sequence[CorruptedResults], *, as_json: bool, outputs: Sequence[Path], paper: bool
) -> None:
    """Print what certificates on corrupted images say."""
    from smoothcert.report.corruptions import corruption_sheets, corruptions_json
    from smoothcert.report.formats import SHEET_FORMATS, to_text
    from smoothcert.storage import write_text

    for entry in entries:
        if entry.missing:
            say(f"{entry.name}: no {', '.join(entry.missing)}; the mean is over the others.")
    sheets = corruption_sheets(entries, paper=paper)
    everything = corruptions_json(entries, paper=paper)
    for out in outputs:
        write_text(
            out, everything if out.suffix == ".json" else "\n".join(SHEET_FORMATS[out.suffix](s) for s in sheets)
        )
        say(f"Wrote {out}")
    sys.stdout.write(everything if as_json else "\n".join(map(to_text, sheets)))


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
