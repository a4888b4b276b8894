"""`smoothcert compare-precision`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from smoothcert.cli.certify import add_options
from smoothcert.cli.job import load_job
from smoothcert.cli.progress import ProgressBar, say


def add_commands(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "compare-precision",
        help="how often two precisions vote differently, and what a certificate keeps",
        description="Count on common noises how often a network votes differently in two precisions, bound that "
        "probability, and say the radius at which the first one's certificate holds for the second.",
    )
    add_options(parser, n=10_000, precision="fp32")
    parser.add_argument("--n0", "--N0", type=int, default=100, metavar="N0", help="noises that select (default: 100)")
    parser.add_argument("--with", dest="second", default="bf16", help="the second precision (default: bf16)")
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
        raise UsageError(f"Both precisions are {precisions[0]}; choose another with `--with`.")
    job = load_job(args)
    data, indices = job.only(args)
    first, second = (
        SmoothedClassifier(
            job.checkpoint.model,
            job.sigma,
            job.checkpoint.model.num_classes,
            input_shape=data.shape,
            precision=precision,
            form=args.form or "folded",
            micro_batch=args.micro_batch,
        )
        for precision in precisions
    )
    if args.dry_run:
        plan = {"images": len(indices), "samples": args.n0 + args.n, "precisions": precisions}
        text = f"{len(indices):,} images, {args.n0 + args.n:,} samples each, {' and '.join(precisions)}"
        print(json.dumps(plan) if args.json else text)
        return
    task = f"compare-{'-'.join(precisions)}"
    name = results_name(task, data.name, data.split, job.sigma, args.n, skip=args.skip, most=args.max, shard=args.shard)
    folder = Path(args.checkpoint) if args.checkpoint else Path("runs", args.pretrained)
    out = args.out or (folder / name if args.pretrained or folder.is_dir() else folder.with_name(name))
    options: dict[str, Any] = {"n0": args.n0, "n": args.n, "alpha": args.alpha, "seed": args.seed, "batch": args.batch}
    with ProgressBar("compare", len(indices), "images") as bar:
        options |= {"on_progress": lambda progress: bar.update(progress.done, "")}
        options |= {"indices": indices, "model": job.checkpoint.describe()}
        compare_precision(first, second, data, out, **options)
    say(f"Results: {out}")
    _print_summary(out, args.n, args.alpha, as_json=args.json)


def _print_summary(out: Path, n: int, alpha: float, *, as_json: bool) -> None:
    import csv

    from smoothcert.statistics.bounds import failure_upper_bound

    with out.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    differ, votes = [int(row["differ"]) for row in rows], n * len(rows)
    right = [row["correct"] == "1" for row in rows]
    radii = {
        key: sum(float(row[key]) for row, good in zip(rows, right, strict=True) if good) / len(rows)
        for key in ("radius", "transferred")
    }
    summary = {
        "images": len(rows),
        "differ": sum(differ) / votes,
        "differ_at_most": float(failure_upper_bound(votes - sum(differ), votes, alpha)),
        "differ_worst_image": max(differ) / n,
        "acr": radii["radius"],
        "acr_transferred": radii["transferred"],
    }
    text = (
        "images {images:,}; share of votes that differ {differ:.2e} (at most {differ_at_most:.2e} on average, "
        "{differ_worst_image:.2e} seen on one image); ACR {acr:.3f}, which transfers as {acr_transferred:.3f}"
    )
    print(json.dumps(summary) if as_json else text.format(**summary))
