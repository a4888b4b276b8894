"""The command `smoothcert predict`."""

from __future__ import annotations

import argparse
from typing import Any

from smoothcert.cli.voting import add_voting_options, print_summaries, run_on_datasets


def add_command(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "predict",
        help="classify by majority vote under noise",
        description="Classify the images of a dataset by majority vote under noise, abstaining where the vote is "
        "too close. Run the same command again to resume an interrupted run.",
    )
    add_voting_options(parser, n=1000)
    parser.set_defaults(run=run, task="predict")


def run(args: argparse.Namespace) -> None:
    """Classify images and print a summary."""
    from smoothcert.certification.dataset import predict_dataset
    from smoothcert.statistics import bounds

    def summarize(rows: list[dict[str, str]]) -> dict[str, Any]:
        return {
            "images": len(rows),
            "accuracy": 100 * sum(row["correct"] == "1" for row in rows) / len(rows),
            "abstention": 100 * sum(row["predict"] == "-1" for row in rows) / len(rows),
        }

    bounds.check_prediction(args.n, args.alpha)
    outs = run_on_datasets(args, predict_dataset)
    text = "images {images:,}, accuracy {accuracy:.2f}%, abstained {abstention:.2f}%"
    print_summaries(outs, summarize, text, as_json=args.json)
