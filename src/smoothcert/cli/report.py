"""The command `smoothcert report`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.common_options import fraction
from smoothcert.cli.parser import add_several
from smoothcert.cli.progress import ProgressBar, say
from smoothcert.cli.report_page import add_page_options, write_page
from smoothcert.errors import unknown_name

if TYPE_CHECKING:
    from smoothcert.report.corrupted.results import CorruptedResults
    from smoothcert.report.sources import Findings
    from smoothcert.report.tables.formats import Annex, Sheet
    from smoothcert.report.tables.table import Table


def add_command(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "report",
        help="tabulate results",
        description="Print a table of ACR, its standard error, and certified accuracy (%) per radius.",
    )
    text = "results file, run folder, or folder of runs; NAME is its name in the table"
    parser.add_argument("files", nargs="+", metavar="[NAME=]RUN", help=text)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    formats = "also write the tables to a .md, .tex, .csv, .json or .txt file; can be repeated"
    parser.add_argument("--out", action="append", default=[], type=Path, metavar="FILE", help=formats)
    add_unverified(parser)
    group = parser.add_argument_group("table")
    add_several(group, "--radii", type=float, metavar="R", help="l2 radii of the columns (default: the CAT-RS paper's)")
    add_several(
        group, "--linf", type=fraction, default=[], metavar="EPS", help="add columns for l_inf radii, such as 2/255"
    )
    group.add_argument("--baseline", metavar="NAME", help="compare ACR with this result, on the images that both cover")
    group.add_argument("--paper", action="store_true", help="also show the CAT-RS paper's numbers")
    text = "also show the best row per radius, ACR at fewer votes, and training cost"
    group.add_argument("--beyond-acr", action="store_true", help=text)
    text = "gray out accuracies that Gaussian training exceeds at the same or a lower cost"
    group.add_argument("--gray", action="store_true", help=text)
    text = "write the distribution of p_A, the share of votes for the label, as CSV"
    group.add_argument("--p-a", type=Path, metavar="FILE", help=text)
    group = parser.add_argument_group("for files without a sidecar (default: from the path DATASET/METHOD-SIGMA.tsv)")
    group.add_argument("--dataset", metavar="NAME", help="dataset of these files")
    group.add_argument("--sigma", type=float, help="noise level of these files")
    add_page_options(parser)
    parser.set_defaults(run=run)


def add_unverified(parser: argparse.ArgumentParser) -> None:
    """Add `--unverified`."""
    text = "also read results whose rows contradict their votes or settings"
    parser.add_argument("--unverified", action="store_true", help=text)


def run(args: argparse.Namespace) -> None:
    """Print the table, and write the files that the options ask for."""
    findings, table = print_table(
        args.files,
        as_json=args.json,
        outputs=args.out,
        about={"dataset": args.dataset, "sigma": args.sigma},
        radii=args.radii,
        linf=args.linf,
        baseline=args.baseline,
        paper=args.paper,
        unverified=args.unverified,
        beyond_acr=args.beyond_acr,
        gray=args.gray,
    )
    if args.p_a:
        from smoothcert.report.tables.beyond_acr import distribution_csv
        from smoothcert.runtime.atomic_files import write_text

        write_text(args.p_a, distribution_csv(findings.runs))
        say(f"Wrote {args.p_a}")
    write_page(args, findings, table)


def print_table(
    files: Sequence[str],
    *,
    as_json: bool = False,
    outputs: Sequence[Path] = (),
    about: dict[str, Any] | None = None,
    unverified: bool = False,
    beyond_acr: bool = False,
    paper: bool = False,
    **options: Any,
) -> tuple[Findings, Table | None]:
    """Print the table of results, write it to `outputs`, and return the results and the table."""
    from smoothcert.dataset_names import canonical_name
    from smoothcert.report.sources import read_findings
    from smoothcert.report.tables.seed_means import seed_annex
    from smoothcert.report.tables.table import build_table

    check_outputs(outputs)
    given = {key: value for key, value in (about or {}).items() if value is not None}
    if "dataset" in given:
        given["dataset"] = canonical_name(given["dataset"])
    if unverified:
        say("`--unverified`: rows are not checked against their votes and settings.")
    with ProgressBar("Reading results", None, "files", transient=True) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done)

        findings = read_findings(files, unverified=unverified, progress=progress, **given)
    table = build_table([run.entry for run in findings.runs], paper=paper, **options) if findings.runs else None
    for run in findings.runs:
        if run.unfinished:
            say(run.unfinished)
    if paper and table and not any(row.paper for row in table.rows):
        say("The CAT-RS paper has no row for this dataset, noise level and method.")
    seeded = [row for row in table.rows if row.entry.seed is not None] if table else []
    annexes = [seed_annex(seeded, several_sets=table.several_sets)] if table and seeded else []
    if table and beyond_acr:
        from smoothcert.report.tables.beyond_acr import best_annex, fewer_votes_annex

        annexes += [best_annex(table), fewer_votes_annex(findings.runs, table)]
    show(table, findings.corrupted, annexes=annexes, as_json=as_json, outputs=outputs, paper=paper)
    return findings, table


def show(
    table: Table | None,
    corrupted: Sequence[CorruptedResults] = (),
    *,
    as_json: bool,
    outputs: Sequence[Path],
    paper: bool = False,
    annexes: Sequence[Annex] = (),
) -> None:
    """Print the tables, those of corrupted datasets first, and write them to each file in its extension's format."""
    from smoothcert.cli.rich_table import show_tables
    from smoothcert.report.corrupted.results import corruption_groups, same_images
    from smoothcert.report.corrupted.tables import corruption_sheets, corruptions_json
    from smoothcert.report.tables.formats import FORMATS
    from smoothcert.report.tables.table import to_json
    from smoothcert.runtime.atomic_files import write_text

    tables: list[Table | Sheet] = [*corruption_sheets(corrupted, paper=paper)]
    values = [corruptions_json(entry, paper=paper) for entry in corrupted]
    if table:
        tables.append(table)
        values += to_json(table)
    for annex in annexes:
        tables.append(annex.sheet)
        values += annex.values

    def as_text(suffix: str) -> str:
        if suffix == ".json":
            return json.dumps(values, indent=2) + "\n"
        return "\n".join(FORMATS[suffix](part) for part in tables)

    if not all(map(same_images, corruption_groups(corrupted))):
        say("Tables of corruptions mark no best values: their rows cover different images.")
    if table and len(table.groups()) > len({row.entry.group for row in table.rows}):
        say("Rows on different images form separate groups, each with its own best values.")
    for entry in corrupted:
        if entry.missing:
            say(f"{entry.name}: no {', '.join(entry.missing)}; the mean is over the other corruptions.")
        if entry.uneven:
            missing = f"some of the {len(entry.images):,} images are not in {', '.join(entry.uneven)}"
            say(f"{entry.name}: {missing}; each number covers the available images.")
    for out in outputs:
        write_text(out, as_text(out.suffix))
        say(f"Wrote {out}")
    if as_json or not sys.stdout.isatty():
        sys.stdout.write(as_text(".json" if as_json else ".txt"))
    else:
        show_tables(tables)


def check_outputs(outputs: Sequence[Path]) -> None:
    """Raise if an output file has an unknown extension."""
    from smoothcert.report.tables.formats import FORMATS

    known = [*FORMATS, ".json"]
    for out in outputs:
        if out.suffix not in known:
            raise unknown_name("extension", out.suffix, known)
