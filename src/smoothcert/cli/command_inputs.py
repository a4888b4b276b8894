"""The model and datasets of a command, loaded after its numeric options were checked."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from smoothcert.cli.corruption_options import load_datasets, select_images

if TYPE_CHECKING:
    import torch

    from smoothcert.checkpoints.checkpoint import Checkpoint
    from smoothcert.data import ImageData


@dataclass(frozen=True)
class CommandInputs:
    """A checkpoint on its device, the noise level, and one dataset or one per corruption."""

    checkpoint: Checkpoint
    sigma: float
    datasets: list[ImageData]
    device: torch.device

    def single_dataset(self, args: argparse.Namespace) -> tuple[ImageData, list[int]]:
        """Return the dataset and the selected images, or raise if there are several datasets."""
        from smoothcert.errors import UsageError

        if len(self.datasets) > 1:
            raise UsageError(f"{args.data} has {len(self.datasets)} corruptions; choose one with `--corruption`.")
        return self.datasets[0], select_images(args, self.datasets[0], args.shard)


def load_inputs(args: argparse.Namespace) -> CommandInputs:
    """Check the numeric options, then load the checkpoint and the datasets."""
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
        hint = "; RUN comes before options with several values" if args.corruption and not args.pretrained else ""
        raise UsageError(f"Expected either RUN, a checkpoint, or `--pretrained`, a bundled pretrained model{hint}.")
    device = choose_device(args.device)
    current_ranks().require_same_on_all_ranks(facts(device))
    path = Path(args.checkpoint) if args.checkpoint else pretrained_path(args.pretrained)
    checkpoint = load_checkpoint(path, normalization=args.normalization)
    sigma = args.sigma if args.sigma is not None else checkpoint.about.get("sigma")
    if sigma is None:
        raise UsageError("The checkpoint does not record its noise level; set it with `--sigma`.")
    trained = RunFolder(path).read_config()
    if trained and args.data is None:  # images are resized as for training
        args.resize, args.crop = args.resize or trained.resize or None, args.crop or trained.crop or None
    datasets = load_datasets(args, trained.dataset if trained else checkpoint.about.get("dataset"))
    for data in datasets:
        checkpoint.model.check_shape(data.shape)
    checkpoint.model.to(device)
    return CommandInputs(checkpoint, sigma, datasets, device)
