"""`ImageData`, the labelled 8-bit images that all readers return, and the selection of a part of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from smoothcert.errors import SmoothcertError, UsageError, counted
from smoothcert.statistics.bounds import check_count


class Images(Protocol):
    """Images that are read from files on demand, used in place of a tensor."""

    @property
    def shape(self) -> torch.Size:
        """[count, channels, height, width]."""

    def __getitem__(self, indices: Tensor, /) -> Tensor:
        """Return the uint8 images at these indices."""

    def fingerprint(self) -> bytes:
        """Return a hash that identifies the images without reading all of them."""


@dataclass(frozen=True)
class ImageData:
    """Labelled images of one split of a dataset.

    Args:
        name: The name of the dataset.
        split: `train` or `test`.
        images: uint8 [count, channels, height, width]: a tensor, or images read from files on demand.
        labels: int64 [count].
        classes: The class names.
        mean: The mean per channel that published networks subtract, or zeros.
        std: The standard deviation per channel that they divide by, or ones.
        severities: How many times the images of a corrupted dataset are repeated, mildest severity first.

    Raises:
        SmoothcertError: If images, labels and classes do not fit together.

    Example:
        >>> images = torch.zeros(2, 1, 28, 28, dtype=torch.uint8)
        >>> ImageData("mine", "test", images, torch.tensor([0, 1]), ("cat", "dog"), (0.0,), (1.0,))
        <ImageData mine, test: 2 images of shape [1, 28, 28], 2 classes>
    """

    name: str
    split: str
    images: Tensor | Images
    labels: Tensor
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    severities: int = 1

    def __post_init__(self) -> None:
        if getattr(self.images, "dtype", torch.uint8) != torch.uint8:
            kind = f"{type(self.images).__name__} of {getattr(self.images, 'dtype', '')}"
            raise UsageError(f"{self.name}: expected images as a tensor of uint8, from 0 to 255, but got a {kind}.")
        if not isinstance(self.labels, Tensor):
            raise UsageError(f"{self.name}: expected labels as a tensor, but got a {type(self.labels).__name__}.")
        if len(self.labels) != self.images.shape[0]:
            raise SmoothcertError(
                f"{self.name}: {counted(self.images.shape[0], 'image')} but {counted(len(self.labels), 'label')}."
            )
        if not len(self.labels):
            raise SmoothcertError(f"{self.name}: the {self.split} split holds no images.")
        low, high = int(self.labels.min()), int(self.labels.max())
        if low < 0 or high >= len(self.classes):
            wrong = low if low < 0 else high
            raise SmoothcertError(f"{self.name}: label {wrong} lies outside the {len(self.classes)} classes.")

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        classes = counted(len(self.classes), "class", "classes")
        what = f"{counted(len(self), 'image')} of shape {list(self.shape)}, {classes}"
        return f"<ImageData {self.name}, {self.split}: {what}>"

    @property
    def shape(self) -> torch.Size:
        """Shape of one image: channels, height, width."""
        return torch.Size(self.images.shape[1:])

    def floats(self, indices: Sequence[int] | Tensor, device: torch.device | str = "cpu") -> Tensor:
        """Return images as float32 in [0, 1], the range in which noise is added."""
        return self.images[torch.as_tensor(indices)].to(device).float() / 255

    def to(self, device: torch.device | str) -> ImageData:
        """Return a copy on a device; images in files are left there."""
        if not isinstance(self.images, Tensor):
            return self
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))

    def subset(self, indices: Sequence[int] | Tensor) -> ImageData:
        """Return the images at these indices as a dataset in memory."""
        chosen = torch.as_tensor(indices)
        return replace(self, images=self.images[chosen], labels=self.labels[chosen], severities=1)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of images and labels (for an image folder: of file names, file sizes and labels)."""
        digest = hashlib.sha256(str(tuple(self.images.shape)).encode())
        if isinstance(self.images, Tensor):
            digest.update(self.images.cpu().contiguous().numpy().tobytes())
        else:
            digest.update(self.images.fingerprint())
        digest.update(self.labels.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


def number_classes(labels: Tensor) -> tuple[str, ...]:
    """Return class names for labels without names: their numbers."""
    return tuple(str(label) for label in range(int(labels.max()) + 1 if len(labels) else 0))


def select(count: int, skip: int = 1, limit: int | None = None, shard: tuple[int, int] = (1, 1)) -> list[int]:
    """Return the indices that `--skip`, `--max` and `--shard` select from `count` images.

    Args:
        count: The number of images.
        skip: Keep every `skip`-th image.
        limit: Keep indices below this, as `--max` in the published scripts: it is not the number of images.
        shard: (I, N) for the I-th of N shards, counted from 1.

    Returns:
        The selected indices, in order.

    Raises:
        UsageError: If a value is out of range, or nothing is selected.

    Example:
        >>> select(100, skip=20, limit=70)
        [0, 20, 40, 60]
        >>> select(100, skip=20, shard=(2, 2))
        [20, 60]
    """
    part, parts = shard
    check_count("skip", skip)
    if limit is not None:
        check_count("limit", limit)
    if not 1 <= part <= parts:
        raise UsageError(f"Expected `shard` to be part I of N with I from 1 to N, but got part {part} of {parts}.")
    chosen = list(range(0, count if limit is None else min(limit, count), skip))[part - 1 :: parts]
    if not chosen:
        raise UsageError(f"`skip`, `limit` and `shard` select none of the {count} images.")
    return chosen


def select_rows(
    data: ImageData,
    skip: int = 1,
    limit: int | None = None,
    shard: tuple[int, int] = (1, 1),
    severities: Sequence[int] | None = None,
) -> list[int]:
    """Return the rows that the options select: in a corrupted dataset, the same images at each severity."""
    levels = sorted(set(severities or range(1, data.severities + 1)))
    wrong = [level for level in levels if not 1 <= level <= data.severities]
    if wrong:
        raise UsageError(f"Expected `severities` to be from 1 to {data.severities}, but got {wrong[0]}.")
    each = len(data) // data.severities
    images = select(each, skip, limit)
    rows = [(level - 1) * each + image for level in levels for image in images]
    return [rows[position] for position in select(len(rows), shard=shard)]
