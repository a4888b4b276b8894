"""`smoothcert report` and `smoothcert merge`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.common_options import fraction
from smoothcert.cli.parser import Several
from smoothcert.cli.progress import say
from smoothcert.cli.report_page import add_page_options, write_page

if TYPE_CHECKING:
    from smoothcert.report.corrupted.results import CorruptedResults
    from smoothcert.report.sources import Findings
    from smoothcert.report.tables.formats import Annex, Sheet
    from smoothcert.report.tables.table import Table


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
    report.add_argument(
        "--radii", type=float, action=Several, metavar="R ...", help="radii (default: the paper's grid)"
    )
    report.add_argument(
        "--linf", type=fraction, action=Several, default=[], metavar="EPS ...", help="l_inf radii, such as 2/255"
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
    from smoothcert.dataset_names import canonical_name
    from smoothcert.report.sources import read_findings
    from smoothcert.report.tables.seed_means import over_seeds, seed_annex
    from smoothcert.report.tables.table import build_table

    check_outputs(outputs)
    given = {key: value for key, value in (about or {}).items() if value is not None}
    if "dataset" in given:
        given["dataset"] = canonical_name(given["dataset"])
    found = read_findings(files, **given)
    table = build_table([run.entry for run in found.runs], **options) if found.runs else None
    for run in found.runs:
        if run.unfinished:
            say(run.unfinished)
    if options.get("paper") and table and not any(row.paper for row in table.rows):
        say("The paper has no row of this data set, noise level and method.")
    seeded = [row for row in table.rows if row.entry.seed is not None] if table else []
    annexes = [seed_annex(over_seeds(seeded), several_sets=table.several_sets)] if table and seeded else []
    show(table, found.corrupted, annexes=annexes, as_json=as_json, outputs=outputs, paper=options.get("paper", False))
    return found, table


def show(
    table: Table | None,
    corrupted: Sequence[CorruptedResults] = (),
    *,
    as_json: bool,
    outputs: Sequence[Path],
    paper: bool = False,
    annexes: Sequence[Annex] = (),
) -> None:
    """Print what results say, those on corrupted images first, and write it to files by their extension."""
    from smoothcert.cli.rich_table import show_table
    from smoothcert.report.corrupted.results import corruption_groups, same_images
    from smoothcert.report.tables.formats import to_text
    from smoothcert.report.tables.table import on_same_images
    from smoothcert.runtime.atomic_files import write_text

    even = [on_same_images(rows) for rows in table.rivals()] if table else []
    if not all([*even, *map(same_images, corruption_groups(corrupted))]):
        say("Best and second are not marked among rows that are not on the same images.")
    for entry in corrupted:
        if entry.missing:
            say(f"{entry.name}: no {', '.join(entry.missing)}; the mean is over the others.")
        if entry.uneven:
            lacking = f"some of the {len(entry.images):,} images are not in {', '.join(entry.uneven)}"
            say(f"{entry.name}: {lacking}; each number is over those that are.")
    for out in outputs:
        write_text(out, _as_text(out.suffix, table, corrupted, paper, annexes))
        say(f"Wrote {out}")
    if as_json or corrupted or table is None or not (sys.stdout.isatty() and show_table(table)):
        sys.stdout.write(_as_text(".json" if as_json else ".txt", table, corrupted, paper, annexes))
    else:
        sys.stdout.write("".join("\n" + to_text(annex.sheet) for annex in annexes))


def _as_text(
    suffix: str,
    table: Table | None,
    corrupted: Sequence[CorruptedResults],
    paper: bool,
    annexes: Sequence[Annex],
) -> str:
    from smoothcert.report.corrupted.tables import corruption_sheets, corruptions_json
    from smoothcert.report.tables.formats import SHEET_FORMATS
    from smoothcert.report.tables.table import to_json

    if suffix == ".json":
        rows = [*corruptions_json(corrupted, paper=paper), *(to_json(table) if table else [])]
        rows += [line for annex in annexes for line in annex.values]
        return json.dumps(rows, indent=2) + "\n"
    parts: list[Table | Sheet] = [*corruption_sheets(corrupted, paper=paper), *([table] if table else [])]
    parts += [annex.sheet for annex in annexes]
    return "\n".join(SHEET_FORMATS[suffix](part) for part in parts)


def check_outputs(outputs: Sequence[Path]) -> None:
    """Refuse a file whose extension says no format."""
    from smoothcert.errors import unknown_name
    from smoothcert.report.tables.formats import FORMATS

    for out in outputs:
        if out.suffix not in FORMATS:
            raise unknown_name("extension", out.suffix, FORMATS)


def run_merge(args: argparse.Namespace) -> None:
    """Join shards."""
    from smoothcert.results.merge import merge_results

    count = merge_results(args.files, args.out)
    say(f"Joined {len(args.files)} files, {count:,} images: {args.out}")
