"""What a command about a checkpoint and a data set works on: loaded once its numbers were found to be good."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from smoothcert.cli.corrupted import choose_rows, load_sets

if TYPE_CHECKING:
    import torch

    from smoothcert.checkpoints.checkpoint import Checkpoint
    from smoothcert.data import ImageData


@dataclass(frozen=True)
class Job:
    """A network where it is to run, the noise level, and the data sets: one, or each corruption of a corrupted one."""

    checkpoint: Checkpoint
    sigma: float
    sets: list[ImageData]
    device: torch.device

    def only(self, args: argparse.Namespace) -> tuple[ImageData, list[int]]:
        """Return the data set and the chosen images, for a command that takes one at a time."""
        from smoothcert.errors import UsageError

        if len(self.sets) > 1:
            raise UsageError(f"{args.data} gives {len(self.sets)} sets of images; choose one with `--corruption`.")
        return self.sets[0], choose_rows(args, self.sets[0], args.shard)


def load_job(args: argparse.Namespace) -> Job:
    """Load what the options name."""
    from smoothcert.checkpoints.checkpoint import load_checkpoint
    from smoothcert.checkpoints.pretrained import pretrained_path
    from smoothcert.distributed.ranks import current_ranks
    from smoothcert.errors import UsageError
    from smoothcert.runtime.environment import choose_device, facts
    from smoothcert.statistics import bounds
    from smoothcert.training.run_folder import RunFolder

    if args.sigma is not None:
        bounds.check_sigma(args.sigma)
    bounds.check_alpha(args.alpha)
    bounds.check_seed(args.seed)
    if args.batch is not None:
        bounds.check_count("batch", args.batch)
    if (args.checkpoint is None) == (args.pretrained is None):
        raise UsageError("Name either a checkpoint or, with `--pretrained`, a network of ours.")
    device = choose_device(args.device)
    current_ranks().require_same_on_all_ranks(facts(device))
    path = Path(args.checkpoint) if args.checkpoint else pretrained_path(args.pretrained)
    checkpoint = load_checkpoint(path, normalization=args.normalization)
    sigma = args.sigma if args.sigma is not None else checkpoint.about.get("sigma")
    if sigma is None:
        raise UsageError("The checkpoint does not say its noise level; name it with `--sigma`.")
    trained = RunFolder(path).read_config()
    if trained and args.data is None:  # photographs are cut as they were for training
        args.resize, args.crop = args.resize or trained.resize or None, args.crop or trained.crop or None
    sets = load_sets(args, trained.dataset if trained else checkpoint.about.get("dataset"))
    for data in sets:
        checkpoint.model.check_shape(data.shape)
    checkpoint.model.to(device)
    return Job(checkpoint, sigma, sets, device)
