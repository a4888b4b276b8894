"""The model and datasets of a command, loaded after its numeric options are checked."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.progress import say
from smoothcert.dataset_names import DIMENSIONS, canonical_name
from smoothcert.errors import SmoothcertError, UsageError

if TYPE_CHECKING:
    import torch

    from smoothcert.checkpoints.checkpoint import Checkpoint
    from smoothcert.checkpoints.combine import CombinedCheckpoint
    from smoothcert.data import ImageData
    from smoothcert.smoothing.classifier import SmoothedClassifier


@dataclass(frozen=True)
class CommandInputs:
    """A checkpoint or an ensemble on its device, the noise level, and the datasets.

    A corrupted dataset is represented by several datasets, one per corruption.
    """

    checkpoint: Checkpoint | CombinedCheckpoint
    sigma: float
    datasets: list[ImageData]
    device: torch.device

    def classifier(self, sigma: float, **options: Any) -> SmoothedClassifier:
        """Return the smoothed classifier for images of the datasets."""
        from smoothcert.smoothing.classifier import SmoothedClassifier

        model, shape = self.checkpoint.model, self.datasets[0].shape
        return SmoothedClassifier(model, sigma, model.num_classes, input_shape=shape, **options)


def load_inputs(args: argparse.Namespace) -> CommandInputs:
    """Check sigma, seed, batch and choice of model, then load the checkpoint and the datasets."""
    from smoothcert.checkpoints.checkpoint import load_checkpoint
    from smoothcert.checkpoints.combine import combine_checkpoints
    from smoothcert.checkpoints.pretrained import pretrained_path
    from smoothcert.distributed.ranks import current_ranks
    from smoothcert.runtime.environment import choose_device, facts
    from smoothcert.statistics import bounds
    from smoothcert.training.run_folder import RunFolder

    if args.sigma is not None:
        bounds.check_sigma(args.sigma)
    bounds.check_seed(args.seed)
    if args.batch is not None:
        bounds.check_count("batch", args.batch)
    if sum(given is not None for given in (args.checkpoint, args.pretrained, args.ensemble)) != 1:
        hint = "; put RUN before options that take several values" if args.corruption and not args.pretrained else ""
        others = "a bundled model (`--pretrained`) or several checkpoints (`--ensemble`)"
        raise UsageError(f"Expected exactly one of a checkpoint (RUN), {others}{hint}.")
    if args.consensus is not None and args.ensemble is None:
        raise UsageError("`--consensus` needs `--ensemble`.")
    device = choose_device(args.device)
    current_ranks().require_same_on_all_ranks(facts(device))
    if args.pretrained is not None:
        paths = [pretrained_path(args.pretrained)]
    else:
        paths = [Path(path) for path in args.ensemble or [args.checkpoint]]
    loaded = [load_checkpoint(path, normalization=args.normalization) for path in paths]
    checkpoint = combine_checkpoints(loaded, args.consensus) if args.ensemble else loaded[0]
    sigma = args.sigma if args.sigma is not None else checkpoint.about.get("sigma")
    if sigma is None:
        raise UsageError("The checkpoint does not record its noise level; set it with `--sigma`.")
    folder = RunFolder(paths[0])
    trained = folder.read_config()
    if trained and args.data is None:  # images are resized as for training
        args.resize, args.crop = args.resize or trained.resize or None, args.crop or trained.crop or None
    datasets = _load_datasets(
        args, (folder.dataset_path() or trained.dataset) if trained else checkpoint.about.get("dataset")
    )
    for data in datasets:
        checkpoint.model.check_shape(data.shape)
    checkpoint.model.to(device)
    return CommandInputs(checkpoint, sigma, datasets, device)


def _load_datasets(args: argparse.Namespace, default: str | None) -> list[ImageData]:
    """Load the dataset that the options name. A corrupted dataset becomes one dataset per corruption."""
    from smoothcert.data import find_corrupted, load_dataset

    corrupted = find_corrupted(args.data, args.data_dir) if args.data else None
    if corrupted is None:
        name = args.data or default
        if name is None:
            raise UsageError("The checkpoint does not record its dataset; name one with `--data`.")
        try:
            data = load_dataset(name, args.split, args.data_dir, resize=args.resize, crop=args.crop)
        except SmoothcertError as error:
            if args.data or canonical_name(name) in DIMENSIONS:
                raise
            raise type(error)(f"{str(error).rstrip('.')}; use `--data` if the training data is elsewhere.") from error
        if args.corruption:
            raise UsageError(f"`--corruption` requires a corrupted dataset, but {data.name} is not corrupted.")
        return [data]
    if args.split != "test":
        raise UsageError(f"{corrupted.name} has only a test split; omit `--split`.")
    if args.resize or args.crop:
        raise UsageError(f"`--resize` and `--crop` are for image folders, but {corrupted.name} is not one.")
    if not (args.corruption or corrupted.available):
        raise UsageError(f"{corrupted.folder} contains only held-out corruptions; select them with `--corruption`.")
    if not args.corruption and corrupted.missing:
        say(f"{corrupted.name}: no {', '.join(corrupted.missing)} in {corrupted.folder}; using the other corruptions.")
    return [corrupted.load(name) for name in dict.fromkeys(args.corruption or corrupted.available)]


def select_images(args: argparse.Namespace, data: ImageData, shard: tuple[int, int] = (1, 1)) -> list[int]:
    """Return the indices of the images that `--skip`, `--max`, `--severity` and a shard select."""
    from smoothcert.data import select_rows

    if args.severities and "/" not in data.name:
        raise UsageError(f"`--severity` requires a corrupted dataset, but {data.name} is not corrupted.")
    return select_rows(data, args.skip, args.limit, shard, args.severities)
