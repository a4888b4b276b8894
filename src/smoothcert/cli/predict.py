"""`smoothcert predict`."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smoothcert.cli.voting import add_voting_options, run_on_datasets


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
    """Predict, and print a summary."""
    from smoothcert.certification.dataset import predict_dataset
    from smoothcert.distributed.ranks import join
    from smoothcert.statistics import bounds

    ranks = join()
    bounds.check_prediction(args.n, args.alpha)
    outs = run_on_datasets(args, lambda *inputs, **options: len(predict_dataset(*inputs, **options)))
    if outs and ranks.first:
        _print_summaries(outs, as_json=args.json)


def _print_summaries(outs: Mapping[str, Path], *, as_json: bool) -> None:
    """Print a line per dataset, or as JSON an object (a list of objects for several datasets)."""
    summaries: list[dict[str, Any]] = [{"data": name, **_summary(out)} for name, out in outs.items()]
    if as_json:
        print(json.dumps(summaries[0] if len(summaries) == 1 else summaries))
        return
    for summary in summaries:
        text = "images {images:,}, accuracy {accuracy:.2f}%, abstained {abstention:.2f}%".format(**summary)
        print(text if len(summaries) == 1 else f"{summary['data']}: {text}")


def _summary(out: Path) -> dict[str, Any]:
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return {
        "images": len(rows),
        "accuracy": 100 * sum(row["correct"] == "1" for row in rows) / len(rows),
        "abstention": 100 * sum(row["predict"] == "-1" for row in rows) / len(rows),
    }
