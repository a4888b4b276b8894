"""`smoothcert reproduce`: a table of the paper, from nothing to the comparison."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.options import add_data_dir, seconds
from smoothcert.cli.terminal import duration, say

if TYPE_CHECKING:
    import torch

    from smoothcert.reproduction import Job

_TOGETHER_ON_A_GPU = 6  # LeNet runs; more add nothing, see benchmarks/README.md


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
    parser.add_argument("--precision", help="of the training (default: the recipe's)")
    parser.add_argument("--n", "--N", type=int, default=100_000, metavar="N", help="noises an image (default: 100,000)")
    parser.add_argument(
        "--together", type=int, metavar="K", help="runs that train at once (default: 6 on a GPU, else 1)"
    )
    parser.add_argument(
        "--time-limit", type=seconds, metavar="TIME", help="stop at a checkpoint after this time, say 9m"
    )
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    parser.add_argument(
        "--out", action="append", default=[], type=Path, metavar="FILE", help="write the table here too"
    )
    add_data_dir(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Make the table, or as much of it as the time allows."""
    from smoothcert.cli.train import Stages
    from smoothcert.deadline import OutOfTimeError
    from smoothcert.environment import choose_device
    from smoothcert.reproduction import list_jobs, reproduce

    overrides = {"precision": args.precision} if args.precision else {}
    jobs, device = list_jobs(args.table, args.only, **overrides), choose_device(args.device)
    if args.plan:
        _print_plan(args, jobs, device)
        return
    together = args.together or (_TOGETHER_ON_A_GPU if device.type == "cuda" else 1)
    late: OutOfTimeError | None = None
    with Stages() as stages:
        try:
            reproduce(
                jobs,
                args.runs,
                n=args.n,
                data_dir=args.data_dir,
                device=device,
                together=together,
                on_stage=stages.begin,
                time_limit=args.time_limit,
            )
        except OutOfTimeError as error:
            late = error
    _print_table(args, jobs)
    if late:
        left = [text for text in map(_left, _progress(args, jobs)) if text]
        raise OutOfTimeError(f"{late} Left: {', '.join(left)}. The same command goes on.")


def _progress(args: argparse.Namespace, jobs: Sequence[Job]) -> Any:
    from smoothcert.reproduction import progress_of

    return progress_of(jobs, args.runs, args.data_dir, args.n)


def _left(item: Any) -> str:
    name = item.job.config.name
    if not item.trained:
        return f"{name} (training, {item.total:,} images)"
    return "" if item.finished else f"{name} ({item.total - item.images:,} images)"


def _print_plan(args: argparse.Namespace, jobs: Sequence[Job], device: torch.device) -> None:
    """Print what is left of every run with the time that trials of a few seconds promise, run by run."""
    from smoothcert.cost import estimate_certification, estimate_training

    known: dict[Any, tuple[float, float]] = {}
    lines, total = [], 0.0
    for item in _progress(args, jobs):
        config = item.job.config
        key = (config.dataset, config.architecture, config.method, str(config.options), config.epochs, config.batch)
        if not item.finished and key not in known:
            say(f"Timing {config.name} ...")
            cost = estimate_training(config, args.data_dir, device)
            known[key] = cost.training, estimate_certification(config, args.data_dir, device, args.n)
        training, image = known.get(key, (0.0, 0.0))
        time = (0.0 if item.trained else training) + image * (item.total - item.images)
        total += time
        state = "done" if item.finished else "certify" if item.trained else "train, certify"
        lines.append({"run": config.name, "left": state, "images": item.total - item.images, "seconds": round(time)})
    if args.json:
        print(json.dumps({"device": str(device), "seconds": round(total), "runs": lines}, indent=2))
        return
    for line in lines:
        print(f"{line['run']:44} {line['left']:15} {line['images']:7,} images  {duration(line['seconds']):>9}")
    print(f"{duration(total)} on {device}, one run after the other; soft labels and their teachers come on top.")


def _print_table(args: argparse.Namespace, jobs: Sequence[Job]) -> None:
    from smoothcert.report.formats import FORMATS, to_json_text, to_text
    from smoothcert.report.seeds import over_seeds, to_seed_text
    from smoothcert.report.table import build_table
    from smoothcert.reproduction import find_table, read_entries
    from smoothcert.storage import write_text

    table = find_table(args.table)
    entries = read_entries(args.table, jobs, args.runs, args.data_dir, args.n)
    if not entries:
        say("No run of the table is certified in full yet.")
        return
    made = build_table(entries, paper=True, linf=(2 / 255,) if args.table == "linf" else ())
    for out in args.out:
        write_text(out, FORMATS[out.suffix](made))
        say(f"Wrote {out}")
    sys.stdout.write(to_json_text(made) if args.json else to_text(made))
    if len(table.seeds) > 1 and not args.json:
        sys.stdout.write(to_seed_text(over_seeds(made.rows)))
