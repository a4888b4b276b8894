"""`smoothcert reproduce`: a table of the paper, from nothing to the comparison."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.options import add_data_dir, seconds
from smoothcert.cli.report import check_outputs, show
from smoothcert.cli.terminal import duration, say

if TYPE_CHECKING:
    import torch

    from smoothcert.report.table import Table
    from smoothcert.reproduction import Job, Workplace


def add_commands(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "reproduce",
        help="make a table of the paper: train, certify, compare",
        description="Train and certify every run of a table that is not there yet, and print the table with the "
        "paper's numbers beside ours. What is interrupted goes on when the same command is given again.",
    )
    parser.add_argument("table", help="mnist, fashion-mnist, cifar10, ... (see `smoothcert list tables`)")
    parser.add_argument("--only", default="*", metavar="GLOB", help="rows whose recipe matches, such as 'catrs-*'")
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
    from smoothcert.bounds import check_budget
    from smoothcert.cli.train import Stages
    from smoothcert.config import describe
    from smoothcert.engine.agreement import check_shared, settle
    from smoothcert.engine.ranks import join
    from smoothcert.environment import choose_device, facts
    from smoothcert.errors import SmoothcertError, UsageError
    from smoothcert.reproduction import PROTOCOL, Workplace, list_jobs, reproduce

    # What is wrong with the numbers is said before hours of work.
    check_budget(PROTOCOL["n0"], args.n, PROTOCOL["alpha"])
    check_outputs(args.out)
    if args.skip is not None and args.skip < 1:
        raise UsageError(f"`--skip` must be at least 1, got {args.skip}.")
    if args.together is not None and args.together < 1:
        raise UsageError(f"`--together` must be at least 1, got {args.together}.")
    overrides = {"precision": args.precision} if args.precision else {}
    jobs, device = list_jobs(args.table, args.only, args.skip, **overrides), choose_device(args.device)
    place = Workplace(args.runs, args.data_dir, args.n)
    if not args.precision:
        jobs = [place.as_begun(job) for job in jobs]
    if args.plan:
        _print_plan(args, place, jobs, device)
        return
    ranks = join()
    same = {name: value for job in jobs for name, value in describe(job.config).items()}
    settle(ranks, {**facts(device), **same, "n": args.n, "data parallel": args.data_parallel})
    check_shared(ranks, args.runs)
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
    from smoothcert.cost import estimate_certification, estimate_steps

    trained: dict[Any, float] = {}
    certified: dict[Any, float] = {}
    lines: list[dict[str, Any]] = []
    total = 0.0
    for item in map(place.progress, jobs):
        config, spent = item.job.config, 0.0
        network = (config.dataset, config.architecture)
        run = (*network, config.method, str(config.options), config.epochs, config.batch)
        if not item.trained:
            if run not in trained:
                say(f"Timing {config.name} ...")
                steps, seconds = estimate_steps(config, args.data_dir, device)
                trained[run] = steps * seconds
            spent += trained[run]
        if item.images < item.total:
            if network not in certified:
                certified[network] = estimate_certification(config, args.data_dir, device, args.n)
            spent += certified[network] * (item.total - item.images)
        total += spent
        state = "done" if item.finished else "certify" if item.trained else "train, certify"
        lines.append({"run": config.name, "left": state, "images": item.total - item.images, "seconds": round(spent)})
    if args.json:
        print(json.dumps({"device": str(device), "seconds": round(total), "runs": lines}, indent=2))
        return
    for line in lines:
        print(f"{line['run']:44} {line['left']:15} {line['images']:7,} images  {duration(line['seconds']):>9}")
    print(f"{duration(total)} on {device}, one run after the other; soft labels and their teachers come on top.")


def _print_table(args: argparse.Namespace, place: Workplace, jobs: Sequence[Job]) -> None:
    from smoothcert.report.seeds import over_seeds, to_seed_text
    from smoothcert.report.table import build_table
    from smoothcert.reproduction import find_table, read_entries

    table = find_table(args.table)
    if table.data:
        _print_corruptions(args, place, jobs)
        return
    entries = read_entries(args.table, jobs, place)
    if not entries:
        say("No run of the table is certified in full yet.")
        return
    made = build_table(entries, paper=True, linf=(2 / 255,) if args.table == "linf" else ())
    show(made, as_json=args.json, outputs=args.out)
    if len(table.seeds) > 1 and not args.json:
        sys.stdout.write(to_seed_text(over_seeds(made.rows)))
    if args.table == "training-cost" and not args.json:
        sys.stdout.write(_hours(place, jobs, made))


def _print_corruptions(args: argparse.Namespace, place: Workplace, jobs: Sequence[Job]) -> None:
    from smoothcert.reproduction import read_corrupted_entries

    entries = read_corrupted_entries(jobs, place)
    if not entries:
        say("No run of the table is certified in full yet.")
        return
    show(None, entries, as_json=args.json, outputs=args.out, paper=True)


def _hours(place: Workplace, jobs: Sequence[Job], table: Table) -> str:
    """Return the hours of training, beside those the paper's authors measured on a Titan X."""
    from smoothcert.runs import RunFolder

    theirs = {row.entry.name: row.paper.hours for row in table.rows if row.paper}
    lines = [f"{'method':24} {'hours':>8} {'paper':>6}"]
    for job in jobs:
        metrics = RunFolder(place.runs / job.config.name).read_metrics()
        if job.label in theirs:
            hours = sum(row["seconds"] for row in metrics) / 3600
            lines.append(f"{job.label:24} {hours:8.3f} {theirs[job.label] or 0:6.1f}")
    return "\n" + "\n".join(lines) + "\n"
