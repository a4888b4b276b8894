"""The command `smoothcert data`, with the subcommands get, make, list, show and montage."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from smoothcert.cli.common_options import add_data_dir, add_resize_options, add_split
from smoothcert.cli.parser import add_several
from smoothcert.cli.progress import say
from smoothcert.cli.stages import Stages
from smoothcert.dataset_names import CORRUPTED, DIMENSIONS, DOWNLOADABLE, REGISTERED, canonical_name
from smoothcert.errors import SmoothcertError, UsageError, counted, unknown_name


def add_command(commands: Any) -> None:
    """Add the command and its subcommands."""
    text = "download, make, list and show datasets"
    data = commands.add_parser("data", help=text, description=text.capitalize() + ".")
    verbs = data.add_subparsers(title="verbs", metavar="VERB", required=True)
    get = _add_verb(verbs, "get", "download datasets from their official sources")
    get.add_argument("names", nargs="+", metavar="NAME", help=f"dataset: one of {', '.join(DOWNLOADABLE)}")
    add_data_dir(get)
    get.set_defaults(run=run_get)
    _add_make(verbs)
    _add_montage(verbs)
    listing = _add_verb(verbs, "list", "list all datasets and whether they are present")
    add_data_dir(listing)
    listing.add_argument("--json", action="store_true", help="print the output as JSON")
    listing.set_defaults(run=run_list)
    show = _add_verb(verbs, "show", "describe a dataset")
    show.add_argument("data", metavar="NAME", help="dataset, .npz file or image folder")
    add_split(show)
    add_data_dir(show)
    add_resize_options(show)
    show.add_argument("--json", action="store_true", help="print the output as JSON")
    show.set_defaults(run=run_show)


def _add_verb(verbs: Any, name: str, text: str) -> Any:
    return verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")


def _add_make(verbs: Any) -> None:
    make = verbs.add_parser(
        "make",
        help="make a corrupted copy of a test set",
        description="Corrupt the images of a test set: grayscale images as in MNIST-C, color images as in CIFAR-10-C "
        "at five severities. The same seed gives the same images.",
    )
    text = "mnist-c, cifar10-c, ..., or an .npz file or image folder to corrupt"
    make.add_argument("name", metavar="NAME", help=text)
    text = "corruptions to apply (default: all that count toward the mean accuracy)"
    add_several(make, "--corruption", metavar="TYPE", help=text)
    make.add_argument("--seed", type=int, default=0, help="seed of the corruptions (default: 0)")
    text = "folder to write (default for mnist-c, cifar10-c, ...: NAME in the folder of datasets)"
    make.add_argument("--out", dest="folder", type=Path, metavar="DIR", help=text)
    make.add_argument("--workers", type=int, metavar="N", help="number of processes (default: one per core)")
    add_data_dir(make)
    add_resize_options(make)
    make.set_defaults(run=run_make)


def _add_montage(verbs: Any) -> None:
    montage = _add_verb(verbs, "montage", "draw an image with all its corruptions")
    montage.add_argument("name", metavar="NAME", help="mnist-c, cifar10-c, ..., or a folder of corrupted images")
    montage.add_argument("--image", type=int, default=0, metavar="I", help="index of the image (default: 0)")
    montage.add_argument("--severity", type=int, default=3, metavar="S", help="severity from 1 to 5 (default: 3)")
    montage.add_argument("--out", type=Path, required=True, metavar="FILE", help=".png, .pdf or .svg file to write")
    add_data_dir(montage)
    montage.set_defaults(run=run_montage)


def run_make(args: argparse.Namespace) -> None:
    """Make a corrupted dataset."""
    from smoothcert.data import data_dir, load_dataset
    from smoothcert.data.corruptions import make_corrupted, suite_for, unavailable_corruptions

    name = canonical_name(args.name)
    if name not in CORRUPTED and args.folder is None:
        if not Path(args.name).exists() and name not in DIMENSIONS:
            raise unknown_name("corrupted dataset", args.name, CORRUPTED)
        raise UsageError(f"Expected `--out`, the folder for the corrupted images of {args.name}.")
    source = name.removesuffix("-c") if name in CORRUPTED else args.name
    data = load_dataset(source, "test", args.data_dir, resize=args.resize, crop=args.crop)
    lacking = {} if args.corruption else unavailable_corruptions(data)
    for reason in lacking.values():
        say(f"{reason} Skipping this corruption.")
    chosen = args.corruption or [name for name in suite_for(data.shape[0]).counted if name not in lacking]
    folder = args.folder or data_dir(args.data_dir) / name
    with Stages() as stages:
        show = stages.counter("parts")
        made = make_corrupted(data, folder, chosen, seed=args.seed, workers=args.workers, on_progress=show)
    say(f"{folder}: made {counted(len(made), 'corruption')}" if made else f"{folder}: all corruptions exist already")


def run_montage(args: argparse.Namespace) -> None:
    """Draw an image with all its corruptions."""
    from smoothcert.data import find_corrupted
    from smoothcert.report.figures.canvas import save_figure
    from smoothcert.report.figures.montage import corruption_pictures, draw_montage

    corrupted = find_corrupted(args.name, args.data_dir)
    if corrupted is None:
        raise UsageError(f"{args.name} is not a corrupted dataset; see `smoothcert data list`.")
    pictures = corruption_pictures(corrupted, args.image, args.severity, args.data_dir)
    save_figure(draw_montage(pictures), args.out)
    say(f"Wrote {args.out}")


def run_get(args: argparse.Namespace) -> None:
    """Download datasets."""
    from smoothcert.data import find_corrupted
    from smoothcert.data.download import fetch_dataset

    for name in args.names:
        with Stages() as stages:
            paths = fetch_dataset(name, args.data_dir, stages.counter("bytes"))
        corrupted = find_corrupted(name, args.data_dir) if canonical_name(name) in CORRUPTED else None
        for path in paths:  # for a corrupted dataset, only the archive has a checksum
            say(f"{path}: present{'' if corrupted else ', checksum verified'}")
        if corrupted and corrupted.missing:
            missing = ", ".join(corrupted.missing)
            hint = "rename or remove the folder, and run the command again to download all corruptions"
            say(f"{corrupted.name}: no {missing} in {corrupted.folder}; {hint}.")


def run_list(args: argparse.Namespace) -> None:
    """Print all datasets and whether they are present."""
    from smoothcert.data import data_dir
    from smoothcert.data.registry import DATASETS, IMAGENET_ABOUT, find_imagenet

    root = data_dir(args.data_dir)
    datasets = [(name, dataset.find(root, "test") is not None, dataset.about) for name, dataset in DATASETS.items()]
    corrupted = "corrupted copies of {}'s test set"
    datasets += [(name, _is_present(name, root), corrupted.format(name.removesuffix("-c"))) for name in CORRUPTED]
    datasets.append(("imagenet", find_imagenet(root, "test") is not None, IMAGENET_ABOUT))
    datasets += [(name, True, "registered by a plugin") for name in sorted(REGISTERED)]
    rows = [dict(zip(("name", "there", "about"), row, strict=True)) for row in datasets]
    if args.json:
        print(json.dumps({"data_dir": str(root), "datasets": rows}, indent=2))
        return
    say(f"Datasets in {root}:")
    for name, there, about in datasets:
        print(f"{name:15} {'present' if there else 'absent':7}  {about}")


def _is_present(name: str, root: Path) -> bool:
    from smoothcert.data import find_corrupted

    try:
        return find_corrupted(name, root) is not None
    except SmoothcertError:
        return False


def run_show(args: argparse.Namespace) -> None:
    """Print a description of a dataset."""
    from smoothcert.data import load_dataset

    data = load_dataset(args.data, args.split, args.data_dir, resize=args.resize, crop=args.crop)
    facts = {"name": data.name, "split": data.split, "images": len(data)}
    facts |= {key: list(getattr(data, key)) for key in ("shape", "classes", "mean", "std")}
    facts["sha256"] = data.fingerprint
    print(json.dumps(facts, indent=2) if args.json else "\n".join(f"{key:8} {value}" for key, value in facts.items()))
