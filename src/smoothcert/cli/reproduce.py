"""The command `smoothcert reproduce`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.common_options import add_run_options
from smoothcert.cli.progress import duration, say
from smoothcert.cli.report import check_outputs, show
from smoothcert.cli.stages import Stages
from smoothcert.errors import SmoothcertError, UsageError, counted

if TYPE_CHECKING:
    import torch

    from smoothcert.paper.jobs import Job, JobStatus, Workplace
    from smoothcert.report.corrupted.results import CorruptedResults
    from smoothcert.report.tables.formats import Annex
    from smoothcert.report.tables.table import Table


def add_command(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "reproduce",
        help="reproduce a table of the CAT-RS paper: train, certify, compare",
        description="Train and certify all runs of a table that are not finished, and print the results next to "
        "the paper's numbers. Run the same command again to resume.",
    )
    parser.add_argument("table", metavar="TABLE", help="mnist, cifar10, ... (see `smoothcert list tables`)")
    text = "only matching rows, such as 'catrs-*', or seeds, such as '*-seed1'; can be repeated"
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help=text)
    parser.add_argument("--plan", action="store_true", help="print the remaining work and a time estimate, and exit")
    group = parser.add_argument_group("protocol")
    group.add_argument(
        "--precision", metavar="NAME", help="training precision (default: that of an existing run, else the recipe's)"
    )
    text = "noise samples per image (default: 100,000)"
    group.add_argument("--n", "--N", type=int, default=100_000, metavar="N", help=text)
    group.add_argument(
        "--skip", type=int, metavar="K", help="certify only every K-th image (default: depends on TABLE)"
    )
    group = parser.add_argument_group("execution")
    add_run_options(group)
    group.add_argument(
        "--together", type=int, metavar="K", help="train K runs at once (default: 6 for LeNet on a GPU, otherwise 1)"
    )
    text = "under torchrun, train each run on all processes together, for large models (default: one run per process)"
    group.add_argument("--data-parallel", action="store_true", help=text)
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print the table as JSON")
    text = "also write the table to a .md, .tex, .csv, .json or .txt file; can be repeated"
    group.add_argument("--out", action="append", default=[], type=Path, metavar="FILE", help=text)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Run the jobs of the table within the time limit, and print the table."""
    from smoothcert.distributed.ranks import join
    from smoothcert.paper.jobs import PROTOCOL, Workplace, list_jobs
    from smoothcert.paper.reproduce import reproduce
    from smoothcert.runtime.environment import choose_device, facts
    from smoothcert.smoothing.precision import check_precision
    from smoothcert.statistics.bounds import check_budget, check_count
    from smoothcert.training.config import describe

    # Check all options before hours of work.
    check_budget(PROTOCOL["n0"], args.n, PROTOCOL["alpha"])
    check_outputs(args.out)
    for name in ("skip", "together"):
        if getattr(args, name) is not None:
            check_count(name, getattr(args, name))
    if args.precision:
        check_precision(args.precision)
    overrides = {"precision": args.precision} if args.precision else {}
    jobs, device = list_jobs(args.table, *args.only, skip=args.skip, **overrides), choose_device(args.device)
    place = Workplace(args.runs, args.data_dir, args.n)
    if not args.precision:
        jobs = [place.as_begun(job) for job in jobs]
    if args.plan:
        _print_plan(args, place, jobs, device)
        return
    ranks = join()
    settings = {name: value for job in jobs for name, value in describe(job.config).items()}
    ranks.require_same_on_all_ranks({**facts(device), **settings, "n": args.n, "data parallel": args.data_parallel})
    ranks.require_shared_folder(args.runs)
    failure = None
    options = {"device": device, "together": args.together, "data_parallel": args.data_parallel}
    with Stages() as stages:
        try:
            reproduce(jobs, place, on_stage=stages.begin, time_limit=args.time_limit, **options)
        except UsageError:
            raise
        except SmoothcertError as error:
            failure = error
    if ranks.first:
        _print_table(args, place, jobs)
    if failure:
        remaining = [text for text in (_remaining_work(place.progress(job)) for job in jobs) if text]
        raise type(failure)(
            f"{failure} Remaining: {', '.join(remaining)}. Run the same command to resume."
        ) from failure


def _remaining_work(status: JobStatus) -> str:
    name = status.job.config.name
    if not status.trained:
        return f"{name} (training, {counted(status.total, 'image')})"
    return "" if status.finished else f"{name} ({counted(status.total - status.images, 'image')})"


def _print_plan(args: argparse.Namespace, place: Workplace, jobs: Sequence[Job], device: torch.device) -> None:
    from smoothcert.paper.plan import plan

    lines = list(plan(jobs, place, device, lambda name: say(f"Timing {name} ...")))
    total = sum(line.seconds for line in lines)
    if args.json:
        runs = [{**vars(line), "seconds": round(line.seconds)} for line in lines]
        print(json.dumps({"device": str(device), "seconds": round(total), "runs": runs}, indent=2))
        return
    for line in lines:
        print(f"{line.run:44} {line.left:15} {line.images:7,} images  {duration(line.seconds):>9}")
    hint = "; less if several runs are trained at once" if device.type == "cuda" else ""
    print(f"{duration(total)} in total on {device}, one run at a time{hint}.")


def _print_table(args: argparse.Namespace, place: Workplace, jobs: Sequence[Job]) -> None:
    from smoothcert.paper.jobs import find_table
    from smoothcert.paper.reproduce import linf_of, read_corrupted_entries, read_entries
    from smoothcert.report.tables.seed_means import seed_annex
    from smoothcert.report.tables.table import build_table

    table = find_table(args.table)
    corrupted = read_corrupted_entries(jobs, place) if table.data else []
    entries = [] if table.data else read_entries(args.table, jobs, place)
    if not (entries or corrupted):
        say("No run of the table is fully certified yet.")
        if args.json:
            print("[]")
        return
    if corrupted:
        _print_corruptions(args, place, jobs, corrupted)
        return
    results = build_table(entries, paper=True, linf=linf_of(args.table))
    annexes = [seed_annex(results.rows)] if len(table.seeds) > 1 else []
    annexes += [_hours(place, jobs, results)] if args.table == "training-cost" else []
    show(results, as_json=args.json, outputs=args.out, annexes=annexes)


def _print_corruptions(
    args: argparse.Namespace, place: Workplace, jobs: Sequence[Job], entries: Sequence[CorruptedResults]
) -> None:
    show(None, entries, as_json=args.json, outputs=args.out, paper=True)
    without_clean = {entry.name for entry in entries if entry.clean is None}
    for job in jobs:
        if job.label in without_clean:
            command = f"smoothcert certify {place.runs / job.config.name}"
            command += (f" --skip {job.skip}" if job.skip > 1 else "") + (f" --n {args.n}" if args.n != 100_000 else "")
            say(f"{job.label}: the column `clean` is empty; run `{command}` to fill it.")


def _hours(place: Workplace, jobs: Sequence[Job], table: Table) -> Annex:
    """Return a table of each run's training time and of the paper's (on a Titan X), in hours."""
    from smoothcert.report.tables.formats import Annex, Cell, Sheet
    from smoothcert.training.run_folder import RunFolder

    theirs = {row.entry.name: row.paper.hours if row.paper else None for row in table.rows}
    values: list[dict[str, Any]] = []
    cells = []
    for job in jobs:
        if job.label in theirs:
            ours = sum(row["seconds"] for row in RunFolder(place.runs / job.config.name).read_metrics()) / 3600
            printed = theirs[job.label]
            values.append({"name": job.label, "hours": ours, "paper": {"hours": printed}})
            cells.append([Cell(job.label), Cell(f"{ours:.3f}"), Cell("" if printed is None else f"{printed:.1f}")])
    return Annex(Sheet(["method", "hours", "paper"], [cells]), values)
