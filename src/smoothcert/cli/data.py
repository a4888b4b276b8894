"""`smoothcert data get|list|show`."""

from __future__ import annotations

import argparse
import json
from typing import Any

from smoothcert.cli.options import add_data_dir, add_data_options, load_data
from smoothcert.cli.terminal import ProgressBar, say


def add_commands(commands: Any) -> None:
    """Add the command and its three verbs."""
    data = commands.add_parser("data", help="fetch data sets, or see which are there")
    verbs = data.add_subparsers(title="verbs", metavar="VERB", required=True)
    get = verbs.add_parser("get", help="download data sets from their official addresses")
    get.add_argument("names", nargs="+", metavar="NAME", help="mnist, fashion_mnist, cifar10 or cifar100")
    add_data_dir(get)
    get.set_defaults(run=run_get)
    listing = verbs.add_parser("list", help="list the data sets, and whether they are there")
    add_data_dir(listing)
    listing.add_argument("--json", action="store_true", help="print as JSON")
    listing.set_defaults(run=run_list)
    show = verbs.add_parser("show", help="describe a data set")
    add_data_options(show, default="none")
    show.add_argument("--json", action="store_true", help="print as JSON")
    show.set_defaults(run=run_show)


def run_get(args: argparse.Namespace) -> None:
    """Download."""
    from smoothcert.data.download import fetch_dataset

    for name in args.names:
        bars: dict[str, ProgressBar] = {}

        def show(file: str, received: int, total: int | None, bars: dict[str, ProgressBar] = bars) -> None:
            if file not in bars:
                for bar in bars.values():
                    bar.__exit__(None, None, None)
                bars[file] = ProgressBar(file, total, "bytes").__enter__()
            bars[file].update(received)

        try:
            for path in fetch_dataset(name, args.data_dir, show):
                say(f"{path}: there, checksum right")
        finally:
            for bar in bars.values():
                bar.__exit__(None, None, None)


def run_list(args: argparse.Namespace) -> None:
    """List."""
    from smoothcert.data import data_dir
    from smoothcert.data.registry import DATASETS, IMAGENET_ABOUT

    root = data_dir(args.data_dir)
    rows = [
        {"name": name, "there": dataset.find(root, "test") is not None, "about": dataset.about}
        for name, dataset in DATASETS.items()
    ]
    rows.append({"name": "imagenet", "there": (root / "imagenet").is_dir(), "about": IMAGENET_ABOUT})
    if args.json:
        print(json.dumps({"data_dir": str(root), "datasets": rows}, indent=2))
        return
    say(f"Data sets in {root}:")
    for row in rows:
        print(f"{row['name']:14} {'there ' if row['there'] else 'absent'}  {row['about']}")


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
