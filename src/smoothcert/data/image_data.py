"""The value that crosses from the readers to everything else: labelled 8-bit images."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from smoothcert.errors import SmoothcertError, UsageError


class Images(Protocol):
    """Images that are read when asked for: what an image folder offers in place of a tensor."""

    @property
    def shape(self) -> torch.Size:
        """[images, channels, height, width]."""

    def __getitem__(self, indices: Tensor, /) -> Tensor:
        """Return the uint8 images at these indices."""

    def fingerprint(self) -> bytes:
        """Identify the content without reading all of it."""


@dataclass(frozen=True)
class ImageData:
    """Images of one data set and split, as stored: uint8, [count, channels, height, width].

    `mean` and `std` are what the published networks normalise with (zeros and ones where they do not). A corrupted
    set holds the same images at several `severities`, the mildest first.
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
        """Check that the parts belong together."""
        if getattr(self.images, "dtype", torch.uint8) != torch.uint8:
            kind = f"{type(self.images).__name__} of {getattr(self.images, 'dtype', '')}"
            raise UsageError(f"{self.name}: expected images as a tensor of uint8, from 0 to 255, but got a {kind}.")
        if not isinstance(self.labels, Tensor):
            raise UsageError(f"{self.name}: expected labels as a tensor, but got a {type(self.labels).__name__}.")
        if len(self.labels) != self.images.shape[0]:
            raise SmoothcertError(f"{self.name}: {self.images.shape[0]} images but {len(self.labels)} labels.")
        if not len(self.labels):
            raise SmoothcertError(f"{self.name}: the {self.split} split holds no image.")
        low, high = int(self.labels.min()), int(self.labels.max())
        if low < 0 or high >= len(self.classes):
            wrong = low if low < 0 else high
            raise SmoothcertError(f"{self.name}: label {wrong} lies outside the {len(self.classes)} classes.")

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        what = f"{len(self):,} images of shape {list(self.shape)}, {len(self.classes):,} classes"
        return f"<ImageData {self.name}, {self.split}: {what}>"

    @property
    def shape(self) -> torch.Size:
        """The shape of one image: channels, height, width."""
        return torch.Size(self.images.shape[1:])

    def floats(self, indices: Sequence[int] | Tensor, device: torch.device | str = "cpu") -> Tensor:
        """Return images as float32 in [0, 1], the range in which noise is added."""
        pixels = self.images[torch.as_tensor(indices)]
        return pixels.to(device).float() / 255

    def to(self, device: torch.device | str) -> ImageData:
        """Return the data on a device, if its images are in memory and not in files."""
        if not isinstance(self.images, Tensor):
            return self
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))

    def subset(self, indices: Sequence[int] | Tensor) -> ImageData:
        """Return the images at these positions, read into memory, as a data set of their own."""
        chosen = torch.as_tensor(indices)
        return replace(self, images=self.images[chosen], labels=self.labels[chosen], severities=1)

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 over images and labels (for a folder: names, sizes and labels of its files)."""
        digest = hashlib.sha256(str(tuple(self.images.shape)).encode())
        if isinstance(self.images, Tensor):
            digest.update(self.images.cpu().contiguous().numpy().tobytes())
        else:
            digest.update(self.images.fingerprint())
        digest.update(self.labels.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


def select(count: int, skip: int = 1, limit: int | None = None, shard: tuple[int, int] = (1, 1)) -> list[int]:
    """Return the indices that `--skip`, `--max` and `--shard` leave of `count` images.

    As in the published scripts, `skip` keeps the multiples of itself and `limit` bounds the index, not the number.

    >>> select(100, skip=20, limit=70)
    [0, 20, 40, 60]
    >>> select(100, skip=20, shard=(2, 2))
    [20, 60]
    """
    part, parts = shard
    if skip < 1:
        raise UsageError(f"Expected `--skip` to be at least 1, but got {skip}.")
    if limit is not None and limit < 1:
        raise UsageError(f"Expected `--max` to be at least 1, but got {limit}.")
    if not 1 <= part <= parts:
        raise UsageError(f"Expected `--shard` as I/N with I from 1 to N, but got {part}/{parts}.")
    chosen = list(range(0, count if limit is None else min(limit, count), skip))[part - 1 :: parts]
    if not chosen:
        raise UsageError(f"`--skip`, `--max` and `--shard` leave none of the {count} images.")
    return chosen


def select_rows(
    data: ImageData,
    skip: int = 1,
    limit: int | None = None,
    shard: tuple[int, int] = (1, 1),
    severities: Sequence[int] | None = None,
) -> list[int]:
    """Return the rows of a data set that the options leave: of a corrupted one the same images at each severity."""
    levels = sorted(set(severities or range(1, data.severities + 1)))
    wrong = [level for level in levels if not 1 <= level <= data.severities]
    if wrong:
        raise UsageError(f"Expected `--severity` from 1 to {data.severities}, but got {wrong[0]}.")
    each = len(data) // data.severities
    images = select(each, skip, limit)
    rows = [(level - 1) * each + image for level in levels for image in images]
    return [rows[place] for place in select(len(rows), shard=shard)]
