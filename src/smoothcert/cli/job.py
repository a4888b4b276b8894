"""What a command about a checkpoint and a data set works on: loaded once its numbers were found to be good."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from smoothcert.cli.options import load_data

if TYPE_CHECKING:
    import torch

    from smoothcert.checkpoint import Checkpoint
    from smoothcert.data import ImageData


@dataclass(frozen=True)
class Job:
    """A network, the noise level, the images chosen of a data set, and how many all shards have together."""

    checkpoint: Checkpoint
    sigma: float
    data: ImageData
    indices: list[int]
    images: int
    device: torch.device


def load_job(args: argparse.Namespace) -> Job:
    """Load what the options name."""
    from smoothcert import bounds
    from smoothcert.checkpoint import load_checkpoint
    from smoothcert.data import select
    from smoothcert.environment import choose_device
    from smoothcert.errors import UsageError
    from smoothcert.pretrained import pretrained_path
    from smoothcert.runs import RunFolder

    if args.sigma is not None:
        bounds.check_sigma(args.sigma)
    bounds.check_alpha(args.alpha)
    if (args.checkpoint is None) == (args.pretrained is None):
        raise UsageError("Name either a checkpoint or, with `--pretrained`, a network of ours.")
    device = choose_device(args.device)
    path = Path(args.checkpoint) if args.checkpoint else pretrained_path(args.pretrained)
    checkpoint = load_checkpoint(path, normalization=args.normalization)
    sigma = args.sigma if args.sigma is not None else checkpoint.about.get("sigma")
    if sigma is None:
        raise UsageError("The checkpoint does not say its noise level; name it with `--sigma`.")
    data = load_data(args, RunFolder(path).dataset or checkpoint.about.get("dataset"))
    indices = select(len(data), args.skip, args.max, args.shard)
    checkpoint.model.to(device)
    return Job(checkpoint, sigma, data, indices, len(select(len(data), args.skip, args.max)), device)
