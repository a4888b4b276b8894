"""Options shared by several commands, and parsers of their values."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from smoothcert.cli.parser import add_several
from smoothcert.errors import UsageError


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the checkpoint (a path or a bundled model), and for the dataset and its corruptions."""
    parser.add_argument(
        "checkpoint", nargs="?", metavar="RUN", help="run folder, .safetensors file or published .pth.tar file"
    )
    parser.add_argument("--pretrained", metavar="NAME", help="bundled model (see `smoothcert list pretrained`)")
    text = "instead of RUN: checkpoints of an ensemble, which predicts by the mean of their scores"
    add_several(parser, "--ensemble", metavar="RUN", help=text)
    text = "evaluate the other members of the ensemble only if the first K disagree"
    parser.add_argument("--consensus", type=int, metavar="K", help=text)
    names = "see `smoothcert list normalizations`"
    parser.add_argument(
        "--normalization", metavar="NAME", help=f"input normalization of a published checkpoint ({names})"
    )
    group = parser.add_argument_group("data")
    text = "dataset, .npz file or image folder (default: the training dataset)"
    group.add_argument("--data", metavar="NAME", help=text)
    add_split(group)
    add_data_dir(group)
    add_resize_options(group)
    group = parser.add_argument_group("corrupted images (--data mnist-c, cifar10-c, or a folder of such images)")
    add_several(group, "--corruption", metavar="TYPE", help="only these corruptions (default: all available)")
    text = "only these severities (default: all)"
    add_several(group, "--severity", dest="severities", type=int, metavar="S", help=text)


def add_split(parser: argparse._ActionsContainer) -> None:
    """Add `--split`."""
    parser.add_argument("--split", default="test", help="train or test (default: test)")


def add_resize_options(parser: argparse._ActionsContainer) -> None:
    """Add the options for the preprocessing of image folders."""
    parser.add_argument(
        "--resize", type=int, metavar="PIXELS", help="image folders: resize the shorter side to this length"
    )
    parser.add_argument(
        "--crop", type=int, metavar="PIXELS", help="image folders: crop the center to this size, after resizing"
    )


def add_data_dir(parser: argparse._ActionsContainer) -> None:
    """Add `--data-dir`."""
    text = "folder of datasets (default: $SMOOTHCERT_DATA, else the cache folder)"
    parser.add_argument("--data-dir", metavar="DIR", help=text)


def add_force(parser: argparse._ActionsContainer) -> None:
    """Add `--force`, for `check_may_write`."""
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")


def check_may_write(args: argparse.Namespace) -> None:
    """Raise if the file of `--out` exists and `--force` was not given."""
    if args.out.exists() and not args.force:
        raise UsageError(f"{args.out} already exists; choose another `--out`, or overwrite it with `--force`.")


def add_sample_options(group: argparse._ActionsContainer) -> None:
    """Add the options for the seed and for the images to use."""
    group.add_argument("--seed", type=int, default=0, help="seed of the noise (default: 0)")
    group.add_argument("--skip", type=int, default=1, metavar="K", help="use only every K-th image (default: 1)")
    group.add_argument("--max", dest="limit", type=int, metavar="I", help="use only images with an index below I")
    text = "split the images into N shards and use only the I-th (default: 1/1)"
    group.add_argument("--shard", type=shard, default=(1, 1), metavar="I/N", help=text)


def add_device(group: argparse._ActionsContainer) -> None:
    """Add `--device`."""
    group.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, ... (default: auto)")


def add_batch(group: argparse._ActionsContainer) -> None:
    """Add `--batch`."""
    group.add_argument("--batch", type=batch_size, metavar="B", help="noisy images in memory at once (default: auto)")


def add_run_options(group: argparse._ActionsContainer) -> None:
    """Add the options of commands that train: folders, device and time limit."""
    group.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of runs (default: runs)")
    add_data_dir(group)
    add_device(group)
    group.add_argument(
        "--time-limit", type=seconds, metavar="TIME", help="save and stop after this time, such as 90s, 9m or 1.5h"
    )


def shard(text: str) -> tuple[int, int]:
    """Parse `3/8` as (3, 8), the third of eight shards."""
    part, _, parts = text.partition("/")
    try:
        return int(part), int(parts)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected I/N, such as 3/8, but got {text!r}") from None


def batch_size(text: str) -> int | None:
    """Parse a batch size; return None for `auto`."""
    return None if text == "auto" else int(text)


def seconds(text: str) -> float:
    """Parse a time such as `90`, `90s`, `9m` or `1.5h`, and return it in seconds."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    try:
        value = float(text[:-1]) * units[text[-1]] if text[-1:] in units else float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a time such as 90s, 9m or 1.5h, but got {text!r}")
    return value


def fraction(text: str) -> float:
    """Parse a number such as `2/255` or `0.0078`."""
    top, _, bottom = text.partition("/")
    try:
        value = float(top) / (float(bottom) if bottom else 1.0)
    except (ValueError, ZeroDivisionError):
        value = math.nan
    if math.isfinite(value):
        return value
    raise argparse.ArgumentTypeError(f"expected a number such as 2/255, but got {text!r}")
