"""`smoothcert compare-precision`."""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

from smoothcert.cli.command_inputs import load_inputs
from smoothcert.cli.progress import ProgressBar, say
from smoothcert.cli.voting import add_voting_options


def add_command(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "compare-precision",
        help="compare the votes of a model in two precisions",
        description="Count how often a model votes differently in two precisions on the same noise samples, bound "
        "the probability of a different vote, and compute the radius at which certificates of the first precision "
        "hold for the second.",
    )
    add_voting_options(parser, n=10_000, selects=True, precision="fp32", form="folded")
    parser.add_argument("--with", dest="second", default="bf16", metavar="NAME", help="other precision (default: bf16)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Compare, and print the summary."""
    from smoothcert.certification.compare_precision import compare_precision
    from smoothcert.errors import UsageError
    from smoothcert.results.naming import results_name
    from smoothcert.smoothing.classifier import SmoothedClassifier
    from smoothcert.smoothing.precision import check_precision
    from smoothcert.statistics import bounds

    bounds.check_budget(args.n0, args.n, args.alpha)
    precisions = args.precision or "fp32", args.second
    for precision in precisions:
        check_precision(precision)
    if precisions[0] == precisions[1]:
        raise UsageError(f"Expected two different precisions, but both are {precisions[0]}; set `--with`.")
    inputs = load_inputs(args)
    data, indices = inputs.single_dataset(args)
    model, sigma = inputs.checkpoint.model, inputs.sigma
    first, second = (
        SmoothedClassifier(
            model,
            sigma,
            model.num_classes,
            input_shape=data.shape,
            precision=precision,
            form=args.form or "folded",
            micro_batch=args.micro_batch,
        )
        for precision in precisions
    )
    if args.dry_run:
        plan = {"images": len(indices), "samples": args.n0 + args.n, "precisions": precisions}
        text = f"{len(indices):,} images, {args.n0 + args.n:,} samples per image, {' and '.join(precisions)}"
        print(json.dumps(plan) if args.json else text)
        return
    task = f"compare-{'-'.join(precisions)}"
    name = results_name(task, data.name, data.split, sigma, args.n, skip=args.skip, most=args.max, shard=args.shard)
    folder = Path(args.checkpoint) if args.checkpoint else Path("runs", args.pretrained)
    out = args.out or (folder / name if args.pretrained or folder.is_dir() else folder.with_name(name))
    options: dict[str, Any] = {"n0": args.n0, "n": args.n, "alpha": args.alpha, "seed": args.seed, "batch": args.batch}
    with ProgressBar("compare", len(indices), "images") as bar:
        options |= {"on_progress": lambda progress: bar.update(progress.done)}
        options |= {"indices": indices, "model": inputs.checkpoint.describe()}
        compare_precision(first, second, data, out, **options)
    say(f"Results: {out}")
    _print_summary(out, args.n, args.alpha, as_json=args.json)


def _print_summary(out: Path, n: int, alpha: float, *, as_json: bool) -> None:
    from smoothcert.statistics.bounds import failure_upper_bound

    with out.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    differ, votes = [int(row["differ"]) for row in rows], n * len(rows)
    correct = [row for row in rows if row["correct"] == "1"]
    summary = {
        "images": len(rows),
        "differ": sum(differ) / votes,
        "differ_at_most": float(failure_upper_bound(votes - sum(differ), votes, alpha)),
        "differ_worst_image": max(differ) / n,
        "acr": sum(float(row["radius"]) for row in correct) / len(rows),
        "acr_transferred": sum(float(row["transferred"]) for row in correct) / len(rows),
    }
    text = (
        "{images:,} images; share of different votes: {differ:.2e} on average (upper bound {differ_at_most:.2e}), "
        "{differ_worst_image:.2e} for the worst image; ACR {acr:.3f}, transferred {acr_transferred:.3f}"
    )
    print(json.dumps(summary) if as_json else text.format(**summary))
