"""`smoothcert recertify`: another alpha, norm or bound from the votes that are there."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from smoothcert.cli.progress import say
from smoothcert.cli.report import print_table


def add_commands(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "recertify",
        help="read the votes of a results file anew",
        description="Compute certificates for another alpha, norm or bound from the votes beside a results file, "
        "without the network. Decide on them before you look: the best of several readings is no certificate.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="results of `smoothcert certify`")
    parser.add_argument("--alpha", type=float, help="probability of a wrong answer (default: as it was)")
    parser.add_argument("--bound", help="one-sided, randomised or two-sided (default: as it was)")
    parser.add_argument("--norm", help="l1, l2 or linf (default: as it was)")
    parser.add_argument("--top-k", type=int, metavar="K", help="radius within which the label is among the K likeliest")
    parser.add_argument("--classes", type=int, help="number of classes, where the file does not tell it")
    parser.add_argument("--dimensions", type=int, help="values of an input, where the data set's name does not tell it")
    parser.add_argument("--out", type=Path, metavar="FILE", help="results file (default: beside FILE)")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Read the votes anew, write what they say, and print its table."""
    from smoothcert.certification.recertify import Recertification, recertify, write_recertified

    wanted = Recertification(args.alpha, args.bound, args.norm, args.top_k, args.classes, args.dimensions)
    read = recertify(args.file, wanted)
    given = (("alpha", args.alpha), ("", args.bound), ("", args.norm), ("top", args.top_k))
    parts = [f"{key}{value}" for key, value in given if value is not None]
    stem = args.file.name.removesuffix(".gz").removesuffix(".tsv")
    out = args.out or args.file.with_name(f"{stem}-{'-'.join(parts or ['again'])}.tsv")
    write_recertified(out, *read)
    say(f"Results: {out}")
    print_table([str(out)], as_json=args.json)
