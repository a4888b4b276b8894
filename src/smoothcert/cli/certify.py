"""The command `smoothcert certify`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.certificate_options import (
    add_certificate_options,
    check_certificate_options,
    choose_rule,
    report_samples,
)
from smoothcert.cli.command_inputs import select_images
from smoothcert.cli.report import print_table
from smoothcert.cli.voting import add_voting_options, run_on_datasets

if TYPE_CHECKING:
    from smoothcert.data import ImageData
    from smoothcert.smoothing.classifier import SmoothedClassifier


def add_command(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "certify",
        help="certify, for each image, a radius within which the prediction is constant",
        description="Certify the images of a dataset. Run the same command again to resume an interrupted run.",
    )
    add_voting_options(parser, n=100_000, selects=True)
    add_certificate_options(parser)
    parser.set_defaults(run=run, task="certify")


def run(args: argparse.Namespace) -> None:
    """Certify images and print the results table."""
    from smoothcert.certification.dataset import certify_dataset
    from smoothcert.statistics import bounds

    def evaluate(classifier: SmoothedClassifier, data: ImageData, out: Path, **options: Any) -> None:
        rule = choose_rule(args, data.name, len(select_images(args, data)))
        certify_dataset(classifier, data, out, n0=args.n0, bound=args.bound, stop=rule, **options)

    bounds.check_budget(args.n0, args.n, args.alpha, args.bound)
    check_certificate_options(args)
    if outs := run_on_datasets(args, evaluate):
        if args.stop != "fixed":
            report_samples(outs.values(), args.n0 + args.n)
        print_table([str(out) for out in outs.values()], as_json=args.json)
