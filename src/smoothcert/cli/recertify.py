"""The command `smoothcert recertify`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from smoothcert.cli.parser import add_several
from smoothcert.cli.progress import say
from smoothcert.cli.report import add_unverified, print_table
from smoothcert.errors import UsageError


def add_command(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "recertify",
        help="recompute certificates from stored votes",
        description="Compute certificates for another alpha, norm, bound or top K from the votes stored beside a "
        "results file, without the model. Choose these settings before looking at the results: the best of "
        "several attempts is not a valid certificate.",
    )
    text = "results files of `smoothcert certify`; votes files matched by a shell pattern are skipped"
    parser.add_argument("file", nargs="*", type=Path, metavar="FILE", help=text)
    parser.add_argument("--out", type=Path, metavar="FILE", help="results file to write (default: beside FILE)")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    add_unverified(parser)
    group = parser.add_argument_group("certificate (defaults: as in FILE)")
    group.add_argument("--alpha", type=float, help="failure probability")
    group.add_argument(
        "--bound", metavar="NAME", help="bound on the class probability: one-sided, randomised or two-sided"
    )
    group.add_argument("--norm", metavar="NAME", help="l1, l2 or linf")
    group.add_argument(
        "--top-k", dest="top", type=int, metavar="K", help="certify that the label is among the top K classes"
    )
    group = parser.add_argument_group("required unless FILE or its dataset implies them")
    group.add_argument("--classes", type=int, metavar="N", help="number of classes")
    group.add_argument("--dimensions", type=int, metavar="N", help="number of values per input")
    group = parser.add_argument_group("cascade of several noise levels, instead of FILE")
    text = "results files for the same images, from the largest sigma to the smallest"
    add_several(group, "--cascade", type=Path, default=[], metavar="FILE", help=text)
    group.add_argument(
        "--p0",
        type=float,
        metavar="P",
        help="class probability above which a level decides the class (default: 0.5)",
    )
    text = "share of alpha for the first level's lower bound (default: 0.8)"
    group.add_argument("--first-share", type=float, metavar="S", help=text)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Recompute the certificates, write them, and print their table."""
    from smoothcert.results.naming import is_companion

    if not args.cascade and not args.file:
        raise UsageError("Expected a results file, or several after `--cascade`, but got none.")
    wrong = ("file", "bound", "norm", "top", "classes", "dimensions") if args.cascade else ("p0", "first_share")
    for option in wrong:
        if getattr(args, option) not in (None, []):
            name = "FILE" if option == "file" else f"`{option}`"  # `main` turns arguments into flags
            raise UsageError(f"{name} {'cannot be combined with' if args.cascade else 'needs'} `--cascade`.")
    files = [file for file in args.file if not is_companion(file)] or args.file
    if args.out and len(files) > 1:
        raise UsageError(f"`--out` names one file, but {len(files)} results files are given; omit `--out`.")
    outs = [_write_cascade(args)] if args.cascade else [_write_again(args, file) for file in files]
    for out in outs:
        say(f"Results: {out}")
    print_table([str(out) for out in outs], as_json=args.json, unverified=args.unverified)


def _write_cascade(args: argparse.Namespace) -> Path:
    from smoothcert.certification.cascade import certify_cascade, write_cascade
    from smoothcert.results.naming import results_stem

    given = {"alpha": args.alpha, "p0": args.p0, "first_share": args.first_share}
    options = {key: value for key, value in given.items() if value is not None}
    made = certify_cascade(args.cascade, unverified=args.unverified, **options)
    parts = [f"{key.replace('_', '-')}{value}" for key, value in options.items()]
    stem = "-".join([results_stem(args.cascade[0]), "cascade", *parts])
    out: Path = args.out or args.cascade[0].with_name(f"{stem}.tsv")
    write_cascade(out, made)
    return out


def _write_again(args: argparse.Namespace, file: Path) -> Path:
    from smoothcert.certification.recertify import recertify, write_recertified
    from smoothcert.results.naming import results_stem

    options = ("alpha", "bound", "norm", "top", "classes", "dimensions", "unverified")
    recertified = recertify(file, **{name: getattr(args, name) for name in options})
    given = (("alpha", args.alpha), ("", args.bound), ("", args.norm), ("top", args.top))
    parts = [f"{key}{value}" for key, value in given if value is not None]
    out: Path = args.out or file.with_name(f"{results_stem(file)}-{'-'.join(parts or ['again'])}.tsv")
    write_recertified(out, *recertified)
    return out
