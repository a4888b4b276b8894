"""The training and test data of runs: datasets named in their configurations, or data passed from Python."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from smoothcert.data import ImageData, load_dataset
from smoothcert.data.readers.folder import FolderImages
from smoothcert.distributed.ranks import current_ranks
from smoothcert.errors import Notice, SmoothcertError, UsageError
from smoothcert.training.config import TrainConfig

_CHECKED = 16  # number of inputs whose range is checked if the data is read on demand


@runtime_checkable
class RunData(Protocol):
    """Source of the training and test data of runs."""

    def of(self, config: TrainConfig) -> tuple[ImageData, ImageData | None]:
        """Return the training data and, if there is any, the test data of a run."""


class GivenData:
    """Training and test data passed from Python."""

    def __init__(self, train: ImageData, test: ImageData | None) -> None:
        self.train, self.test = train, test

    def of(self, config: TrainConfig) -> tuple[ImageData, ImageData | None]:
        """Return the given data. Raise if the training data differs between ranks."""
        current_ranks().require_same_on_all_ranks({"training data": self.train.fingerprint})
        return self.train, self.test


class RunImages(dict[tuple[Any, ...], tuple[ImageData, ImageData]]):
    """Cache of training and test images, keyed by dataset and preprocessing."""

    def __init__(self, data_dir: str | Path | None) -> None:
        super().__init__()
        self.data_dir = data_dir

    def of(self, config: TrainConfig) -> tuple[ImageData, ImageData]:
        """Return the training and test images of a run, reading them once.

        Raise if floats are out of range, if the classes of training and test folders differ, or if the data differs
        between ranks. Ranks compare class names, numbers of images and, if the data is in memory, training images.
        """
        key = (config.dataset, config.resize, config.crop, config.skip_broken)
        if key in self:
            return self[key]
        train, test = (load_images(config, split, self.data_dir) for split in ("train", "test"))
        for data in (train, test):
            check_range(data)
        if isinstance(train.images, FolderImages) and train.classes != test.classes:
            name = sorted(set(train.classes) ^ set(test.classes))[0]
            has, lacks = ("training", "test") if name in train.classes else ("test", "training")
            raise SmoothcertError(f"{train.name}: the {has} images have a class {name}, but the {lacks} images do not.")
        if len(train) == len(test) and train.fingerprint == test.fingerprint:
            text = f"{train.name} has no separate test images: accuracy is measured on the training images."
            warnings.warn(text, Notice, stacklevel=2)
        facts = {"class folders": " ".join(train.classes), "images": f"{len(train)} + {len(test)}"}
        if isinstance(train.images, Tensor):
            facts["training data"] = train.fingerprint
        current_ranks().require_same_on_all_ranks(facts)
        self[key] = train, test
        return train, test


def load_images(config: TrainConfig, split: str, data_dir: str | Path | None) -> ImageData:
    """Return a run's training or test images. The setting `skip_broken` applies to training images only."""
    return load_dataset(
        config.dataset,
        split,
        data_dir,
        resize=config.resize or None,
        crop=config.crop or None,
        skip_broken=config.skip_broken and split == "train",
    )


def check_range(data: ImageData) -> None:
    """Raise if float inputs are not finite or, if they are images, not in [0, 1].

    If data is read on demand, only the first few inputs are checked.
    """
    if isinstance(data.images, FolderImages):  # always 8-bit
        return
    inputs = data.images if isinstance(data.images, Tensor) else data.images[torch.arange(len(data))[:_CHECKED]]
    if inputs.dtype == torch.uint8:
        return
    low, high = float(inputs.min()), float(inputs.max())
    if not inputs.isfinite().all():
        raise UsageError(f"Expected finite inputs, but {data.name} contains NaN or infinite values; replace them.")
    if len(data.shape) == 3 and not 0 <= low <= high <= 1:
        text = f"images in [0, 1], the range that `sigma` refers to, but they span [{low:.6g}, {high:.6g}]"
        raise UsageError(f"Expected {text}; scale them, and wrap a model made for another range with `adapt_inputs`.")
