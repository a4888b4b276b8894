"""`smoothcert reproduce`: a table of the paper, from nothing to the comparison."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.common_options import add_data_dir, seconds
from smoothcert.cli.progress import duration, say
from smoothcert.cli.report import check_outputs, show

if TYPE_CHECKING:
    import torch

    from smoothcert.paper.jobs import Job, Workplace
    from smoothcert.report.tables.formats import Annex
    from smoothcert.report.tables.table import Table


def add_commands(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "reproduce",
        help="make a table of the paper: train, certify, compare",
        description="Train and certify every run of a table that is not there yet, and print the table with the "
        "paper's numbers beside ours. What is interrupted goes on when the same command is given again.",
    )
    parser.add_argument("table", help="mnist, fashion-mnist, cifar10, ... (see `smoothcert list tables`)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="GLOB",
        help="rows that match, such as 'catrs-*', or single seeds, '*-seed1'; again for more",
    )
    parser.add_argument("--plan", action="store_true", help="say what would run and how long it would take, and stop")
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where runs are kept")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, ... (default: auto)")
    parser.add_argument("--precision", help="of the training (default: as begun, else the recipe's)")
    parser.add_argument("--n", "--N", type=int, default=100_000, metavar="N", help="noises an image (default: 100,000)")
    parser.add_argument("--skip", type=int, metavar="K", help="certify every K-th image only (default: the table's)")
    parser.add_argument(
        "--together", type=int, metavar="K", help="runs that train at once (default: 6 LeNets on a GPU, else 1)"
    )
    parser.add_argument(
        "--time-limit", type=seconds, metavar="TIME", help="stop at a checkpoint after this time, say 9m"
    )
    parser.add_argument(
        "--data-parallel",
        action="store_true",
        help="under torchrun: train each run on all processes, for large networks (default: a run on each process)",
    )
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    parser.add_argument(
        "--out", action="append", default=[], type=Path, metavar="FILE", help="write the table here too"
    )
    add_data_dir(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Make the table, or as much of it as the time allows."""
    from smoothcert.cli.stages import Stages
    from smoothcert.distributed.ranks import join
    from smoothcert.errors import SmoothcertError, UsageError
    from smoothcert.paper.jobs import PROTOCOL, Workplace, list_jobs
    from smoothcert.paper.reproduce import reproduce
    from smoothcert.runtime.environment import choose_device, facts
    from smoothcert.smoothing.precision import check_precision
    from smoothcert.statistics.bounds import check_budget
    from smoothcert.training.config import describe

    # What is wrong with the numbers is said before hours of work.
    check_budget(PROTOCOL["n0"], args.n, PROTOCOL["alpha"])
    check_outputs(args.out)
    if args.skip is not None and args.skip < 1:
        raise UsageError(f"`--skip` must be at least 1, got {args.skip}.")
    if args.together is not None and args.together < 1:
        raise UsageError(f"`--together` must be at least 1, got {args.together}.")
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
    same = {name: value for job in jobs for name, value in describe(job.config).items()}
    ranks.require_same_on_all_ranks({**facts(device), **same, "n": args.n, "data parallel": args.data_parallel})
    ranks.require_shared_folder(args.runs)
    failed: SmoothcertError | None = None
    options = {"device": device, "together": args.together, "data_parallel": args.data_parallel}
    with Stages() as stages:
        try:
            reproduce(jobs, place, on_stage=stages.begin, time_limit=args.time_limit, **options)
        except UsageError:
            raise
        except SmoothcertError as error:
            failed = error
    if ranks.first:
        _print_table(args, place, jobs)
    if failed:
        left = [text for text in (_left(place.progress(job)) for job in jobs) if text]
        raise type(failed)(f"{failed} Left: {', '.join(left)}. The same command goes on.") from failed


def _left(item: Any) -> str:
    name = item.job.config.name
    if not item.trained:
        return f"{name} (training, {item.total:,} images)"
    return "" if item.finished else f"{name} ({item.total - item.images:,} images)"


def _print_plan(args: argparse.Namespace, place: Workplace, jobs: Sequence[Job], device: torch.device) -> None:
    """Print what is left of every run with the time that trials of a few seconds promise, run by run."""
    from smoothcert.paper.plan import plan

    lines = list(plan(jobs, place, device, lambda name: say(f"Timing {name} ...")))
    total = sum(line.seconds for line in lines)
    if args.json:
        runs = [{**vars(line), "seconds": round(line.seconds)} for line in lines]
        print(json.dumps({"device": str(device), "seconds": round(total), "runs": runs}, indent=2))
        return
    for line in lines:
        print(f"{line.run:44} {line.left:15} {line.images:7,} images  {duration(line.seconds):>9}")
    less = "; several at once take less" if device.type == "cuda" else ""
    print(f"{duration(total)} on {device}, one run after the other{less}.")


def _print_table(args: argparse.Namespace, place: Workplace, jobs: Sequence[Job]) -> None:
    from smoothcert.paper.jobs import find_table
    from smoothcert.paper.reproduce import linf_of, read_entries
    from smoothcert.report.tables.seed_means import over_seeds, seed_annex
    from smoothcert.report.tables.table import build_table

    table = find_table(args.table)
    if table.data:
        _print_corruptions(args, place, jobs)
        return
    entries = read_entries(args.table, jobs, place)
    if not entries:
        _say_nothing_yet(args)
        return
    made = build_table(entries, paper=True, linf=linf_of(args.table))
    annexes = [seed_annex(over_seeds(made.rows))] if len(table.seeds) > 1 else []
    annexes += [_hours(place, jobs, made)] if args.table == "training-cost" else []
    show(made, as_json=args.json, outputs=args.out, annexes=annexes)


def _say_nothing_yet(args: argparse.Namespace) -> None:
    say("No run of the table is certified in full yet.")
    if args.json:
        print("[]")


def _print_corruptions(args: argparse.Namespace, place: Workplace, jobs: Sequence[Job]) -> None:
    from smoothcert.paper.reproduce import read_corrupted_entries

    entries = read_corrupted_entries(jobs, place)
    if not entries:
        _say_nothing_yet(args)
        return
    show(None, entries, as_json=args.json, outputs=args.out, paper=True)
    bare = {entry.name for entry in entries if entry.clean is None}
    for job in jobs:
        if job.label in bare:
            command = f"smoothcert certify {place.runs / job.config.name}"
            command += (f" --skip {job.skip}" if job.skip > 1 else "") + (f" --n {args.n}" if args.n != 100_000 else "")
            say(f"{job.label}: the column `clean` is empty; `{command}` makes what it needs.")


def _hours(place: Workplace, jobs: Sequence[Job], table: Table) -> Annex:
    """Return the hours of training, beside those the paper's authors measured on a Titan X."""
    from smoothcert.report.tables.formats import Annex, Cell, Sheet
    from smoothcert.training.run_folder import RunFolder

    theirs = {row.entry.name: row.paper.hours if row.paper else None for row in table.rows}
    values: list[dict[str, Any]] = []
    cells = []
    for job in jobs:
        if job.label in theirs:
            ours = sum(row["seconds"] for row in RunFolder(place.runs / job.config.name).read_metrics()) / 3600
            values.append({"name": job.label, "hours": ours, "paper": {"hours": theirs[job.label]}})
            printed = theirs[job.label]
            cells.append([Cell(job.label), Cell(f"{ours:.3f}"), Cell("" if printed is None else f"{printed:.1f}")])
    return Annex(Sheet(["method", "hours", "paper"], [cells]), values)
