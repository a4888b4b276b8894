"""`smoothcert recertify`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from smoothcert.cli.progress import say
from smoothcert.cli.report import add_unverified, print_table


def add_command(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "recertify",
        help="recompute certificates from stored votes",
        description="Compute certificates for another alpha, norm or bound from the votes stored beside a results "
        "file, without the model. Choose these settings before looking at the results: the best of several attempts "
        "is not a valid certificate.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="results file of `smoothcert certify`")
    parser.add_argument("--out", type=Path, metavar="FILE", help="results file to write (default: beside FILE)")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    add_unverified(parser)
    group = parser.add_argument_group("certificate (defaults: as in FILE)")
    group.add_argument("--alpha", type=float, help="failure probability")
    group.add_argument("--bound", metavar="NAME", help="one-sided, randomised or two-sided")
    group.add_argument("--norm", metavar="NAME", help="l1, l2 or linf")
    group.add_argument(
        "--top-k", dest="top", type=int, metavar="K", help="certify that the label is among the top K classes"
    )
    group = parser.add_argument_group("if neither FILE nor the dataset's name tells")
    group.add_argument("--classes", type=int, metavar="N", help="number of classes")
    group.add_argument("--dimensions", type=int, metavar="N", help="number of values of an input")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Recompute the certificates, write them, and print their table."""
    from smoothcert.certification.recertify import Recertification, recertify, write_recertified

    wanted = Recertification(args.alpha, args.bound, args.norm, args.top, args.classes, args.dimensions)
    recertified = recertify(args.file, wanted, unverified=args.unverified)
    given = (("alpha", args.alpha), ("", args.bound), ("", args.norm), ("top", args.top))
    parts = [f"{key}{value}" for key, value in given if value is not None]
    stem = args.file.name.removesuffix(".gz").removesuffix(".tsv")
    out = args.out or args.file.with_name(f"{stem}-{'-'.join(parts or ['again'])}.tsv")
    write_recertified(out, *recertified)
    say(f"Results: {out}")
    print_table([str(out)], as_json=args.json, unverified=args.unverified)
