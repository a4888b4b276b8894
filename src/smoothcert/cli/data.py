"""`smoothcert data get|make|list|show|montage`."""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from smoothcert.cli.common_options import add_cutting, add_data_dir, add_split, load_data
from smoothcert.cli.corrupted import corruption
from smoothcert.cli.parser import Several
from smoothcert.cli.progress import ProgressBar, say


def add_commands(commands: Any) -> None:
    """Add the command and its verbs."""
    data = commands.add_parser("data", help="fetch data sets, or see which are there")
    verbs = data.add_subparsers(title="verbs", metavar="VERB", required=True)
    get = verbs.add_parser("get", help="download data sets from their official addresses")
    get.add_argument(
        "names",
        nargs="+",
        metavar="NAME",
        help="mnist, fashion_mnist, cifar10, cifar100, or mnist-c, cifar10-c, cifar100-c",
    )
    add_data_dir(get)
    get.set_defaults(run=run_get)
    _add_make(verbs)
    _add_montage(verbs)
    listing = verbs.add_parser("list", help="list the data sets, and whether they are there")
    add_data_dir(listing)
    listing.add_argument("--json", action="store_true", help="print as JSON")
    listing.set_defaults(run=run_list)
    show = verbs.add_parser("show", help="describe a data set")
    show.add_argument("data", metavar="NAME", help="data set, .npz file or image folder")
    add_split(show)
    add_data_dir(show)
    add_cutting(show)
    show.add_argument("--json", action="store_true", help="print as JSON")
    show.set_defaults(run=run_show)


def _add_make(verbs: Any) -> None:
    make = verbs.add_parser(
        "make",
        help="make corrupted copies of a test set",
        description="Corrupt the images of a test set: grey ones as in MNIST-C, colour ones as in CIFAR-10-C at five "
        "severities. The same seed gives the same images.",
    )
    make.add_argument("name", help="mnist-c, fashion_mnist-c, cifar10-c, ..., or an .npz file or image folder")
    make.add_argument(
        "--corruption",
        type=corruption,
        action=Several,
        metavar="TYPE ...",
        help="only these; also some that are held out",
    )
    make.add_argument("--seed", type=int, default=0, help="names the random numbers (default: 0)")
    make.add_argument("--out", type=Path, metavar="DIR", help="where to (default: beside the data sets, by its name)")
    make.add_argument("--workers", type=int, help="processes (default: one a core)")
    add_data_dir(make)
    add_cutting(make)
    make.set_defaults(run=run_make)


def _add_montage(verbs: Any) -> None:
    montage = verbs.add_parser("montage", help="draw an image beside all its corruptions")
    montage.add_argument("name", help="mnist-c, cifar10-c, ... or the folder of such a set")
    montage.add_argument("--image", type=int, default=0, metavar="I", help="which image (default: 0)")
    montage.add_argument(
        "--severity", type=int, default=3, metavar="S", help="from 1 to 5, where there are any (default: 3)"
    )
    montage.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .png, .pdf or .svg file")
    add_data_dir(montage)
    montage.set_defaults(run=run_montage)


def run_make(args: argparse.Namespace) -> None:
    """Make a corrupted set."""
    from smoothcert.data import data_dir, load_dataset
    from smoothcert.data.corruptions import make_corrupted, suite_for, unavailable_corruptions
    from smoothcert.dataset_names import CORRUPTED, DIMENSIONS, canonical_name
    from smoothcert.errors import UsageError, unknown_name

    name = canonical_name(args.name)
    if name not in CORRUPTED and args.out is None:
        if not Path(args.name).exists() and name not in DIMENSIONS:
            raise unknown_name("set of corrupted images", args.name, CORRUPTED)
        raise UsageError(f"Say with `--out` where the corrupted images of {args.name} go.")
    source = name.removesuffix("-c") if name in CORRUPTED else args.name
    data = load_dataset(source, "test", args.data_dir, resize=args.resize, crop=args.crop)
    lacking = {} if args.corruption else unavailable_corruptions(data)
    for reason in lacking.values():
        say(f"{reason} Going on with the others.")
    chosen = args.corruption or [name for name in suite_for(data.shape[0]).corruptions if name not in lacking]
    folder = args.out or data_dir(args.data_dir) / name
    with _Bars("parts") as show:
        made = make_corrupted(data, folder, chosen, seed=args.seed, workers=args.workers, on_progress=show)
    say(f"{folder}: {len(made)} corruptions made" if made else f"{folder}: all there")


def run_montage(args: argparse.Namespace) -> None:
    """Draw an image and its corruptions."""
    from smoothcert.data import find_corrupted
    from smoothcert.errors import UsageError
    from smoothcert.report.figures.montage import corruption_pictures, draw_montage

    found = find_corrupted(args.name, args.data_dir)
    if found is None:
        raise UsageError(f"{args.name} is no set of corrupted images; see `smoothcert data list`.")
    draw_montage(corruption_pictures(found, args.image, args.severity, args.data_dir), args.out)
    say(f"Wrote {args.out}")


def run_get(args: argparse.Namespace) -> None:
    """Download."""
    from smoothcert.data.download import fetch_dataset
    from smoothcert.dataset_names import CORRUPTED, canonical_name

    for name in args.names:
        checked = "" if canonical_name(name) in CORRUPTED else ", checksum right"  # which was the archive's
        with _Bars("bytes") as show:
            paths = fetch_dataset(name, args.data_dir, show)
        for path in paths:
            say(f"{path}: there{checked}")
        if canonical_name(name) in CORRUPTED:
            _say_missing(name, args.data_dir)


class _Bars:
    """A bar for each thing that is reported on, one at a time."""

    def __init__(self, unit: str) -> None:
        self.unit, self.title = unit, ""
        self.open = ExitStack()

    def __enter__(self) -> _Bars:
        return self

    def __exit__(self, *error: object) -> None:
        self.open.close()

    def __call__(self, title: str, done: int, total: int | None) -> None:
        if title != self.title:
            self.open.close()
            self.title, self.bar = title, self.open.enter_context(ProgressBar(title, total, self.unit))
        self.bar.update(done)


def _say_missing(name: str, root: str | None) -> None:
    from smoothcert.data import find_corrupted

    found = find_corrupted(name, root)
    if found and found.missing:
        say(f"{found.name}: no {', '.join(found.missing)} in {found.folder}; move that away to fetch all of it.")


def run_list(args: argparse.Namespace) -> None:
    """List."""
    from smoothcert.data import data_dir
    from smoothcert.data.registry import DATASETS, IMAGENET_ABOUT
    from smoothcert.dataset_names import CORRUPTED

    root = data_dir(args.data_dir)
    rows = [
        {"name": name, "there": dataset.find(root, "test") is not None, "about": dataset.about}
        for name, dataset in DATASETS.items()
    ]
    rows += [
        {
            "name": name,
            "there": _there(name, root),
            "about": f"corrupted copies of {name.removesuffix('-c')}'s test set",
        }
        for name in CORRUPTED
    ]
    rows.append({"name": "imagenet", "there": (root / "imagenet").is_dir(), "about": IMAGENET_ABOUT})
    if args.json:
        print(json.dumps({"data_dir": str(root), "datasets": rows}, indent=2))
        return
    say(f"Data sets in {root}:")
    for row in rows:
        print(f"{row['name']:15} {'there ' if row['there'] else 'absent'}  {row['about']}")


def _there(name: str, root: Path) -> bool:
    from smoothcert.data import find_corrupted
    from smoothcert.errors import SmoothcertError

    try:
        return find_corrupted(name, root) is not None
    except SmoothcertError:
        return False


def run_show(args: argparse.Namespace) -> None:
    """Describe."""
    data = load_data(args, None)
    facts = {
        "name": data.name,
        "split": data.split,
        "images": len(data),
        "shape": list(data.shape),
        "classes": list(data.classes),
        "mean": list(data.mean),
        "std": list(data.std),
        "sha256": data.fingerprint,
    }
    print(json.dumps(facts, indent=2) if args.json else "\n".join(f"{key:8} {value}" for key, value in facts.items()))
