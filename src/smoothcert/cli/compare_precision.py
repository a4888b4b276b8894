"""The command `smoothcert compare-precision`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from smoothcert.cli.voting import add_voting_options, print_summaries, run_on_datasets
from smoothcert.errors import UsageError

if TYPE_CHECKING:
    from smoothcert.smoothing.classifier import SmoothedClassifier


def add_command(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "compare-precision",
        help="compare the votes of a model in two precisions",
        description="Count how often a model votes differently in two precisions on the same noise samples, bound "
        "the probability of a different vote, and compute for each certificate of the first precision a radius that "
        "holds for the second.",
    )
    add_voting_options(parser, n=10_000, selects=True, precision="fp32", form="folded")
    parser.add_argument(
        "--with", dest="second", default="bf16", metavar="NAME", help="second precision (default: bf16)"
    )
    parser.set_defaults(run=run, precision="fp32", form="folded")


def run(args: argparse.Namespace) -> None:
    """Compare two precisions and print a summary."""
    from smoothcert.certification.compare_precision import compare_precision
    from smoothcert.smoothing.classifier import SmoothedClassifier
    from smoothcert.smoothing.precision import check_precision
    from smoothcert.statistics import bounds

    def evaluate(first: SmoothedClassifier, *inputs: Any, **options: Any) -> int:
        deployed = {"precision": args.second, "form": args.form, "micro_batch": args.micro_batch}
        second = SmoothedClassifier(first.model, first.sigma, first.num_classes, **deployed)
        return len(compare_precision(first, second, *inputs, n0=args.n0, **options))

    def summarize(rows: list[dict[str, str]]) -> dict[str, Any]:
        differ, votes = [int(row["differ"]) for row in rows], args.n * len(rows)
        correct = [row for row in rows if row["correct"] == "1"]
        return {
            "images": len(rows),
            "differ": sum(differ) / votes,
            "differ_at_most": float(bounds.failure_upper_bound(votes - sum(differ), votes, args.alpha)),
            "differ_worst_image": max(differ) / args.n,
            "acr": sum(float(row["radius"]) for row in correct) / len(rows),
            "acr_transferred": sum(float(row["transferred"]) for row in correct) / len(rows),
        }

    bounds.check_budget(args.n0, args.n, args.alpha)
    for precision in (args.precision, args.second):
        check_precision(precision)
    if args.precision == args.second:
        raise UsageError(f"Expected two different precisions, but both are {args.second}; set `--with`.")
    args.task = f"compare-{args.precision}-{args.second}"
    text = (
        "{images:,} images; share of different votes: {differ:.2e} on average (upper bound {differ_at_most:.2e}), "
        "{differ_worst_image:.2e} for the worst image; ACR {acr:.3f}, transferred {acr_transferred:.3f}"
    )
    print_summaries(run_on_datasets(args, evaluate), summarize, text, as_json=args.json)
