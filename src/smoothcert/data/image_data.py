"""`ImageData`, a dataset of labeled inputs, and functions that select some of its inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, overload, runtime_checkable

import torch
from torch import Tensor

from smoothcert.dataset_names import MOST_CLASSES
from smoothcert.errors import SmoothcertError, UsageError, counted, kind_of, quote, takes
from smoothcert.statistics.bounds import check_count


@runtime_checkable
class Images(Protocol):
    """Images that are read on demand, used in place of a tensor."""

    @property
    def shape(self) -> torch.Size:
        """Shape of all images together: [count, channels, height, width], or [count, ...] for other inputs."""

    def __getitem__(self, indices: Tensor, /) -> Tensor:
        """Return the images at these indices."""

    def fingerprint(self) -> bytes:
        """Return bytes that identify the images, without reading all of them."""


_NAMES = (tuple, list)


@takes(name=str, split=str, classes=_NAMES, mean=_NAMES, std=_NAMES, severities=int)
@dataclass(frozen=True)
class ImageData:
    """Labeled images, or inputs of any other shape, of one split of a dataset.

    Supports `len`, indexing and iteration: `data[i]` is the pair (input as float32, label), and a slice `data[i:j]` is
    an `ImageData` again.

    Args:
        name: The name of the dataset.
        split: `train` or `test`.
        images: Tensor [count, ...], or an object that reads images on demand. uint8 values from 0 to 255 stand for
            inputs in [0, 1]; floating-point values are used unchanged.
        labels: int64 [count].
        classes: The class names; default: the numbers from 0 to the largest label.
        mean: The mean per channel that published networks subtract; default: zeros.
        std: The standard deviation per channel by which published networks divide; default: ones.
        severities: The number of severities in a corrupted dataset, which contains all images at the mildest severity,
            then all images at the next, and so on.

    Raises:
        UsageError: If images or labels have an unsupported type.
        SmoothcertError: If images, labels and classes do not match, or there are no images.

    Example:
        >>> images = torch.zeros(2, 1, 28, 28, dtype=torch.uint8)
        >>> data = ImageData("mine", "test", images, torch.tensor([0, 1]), ("cat", "dog"))
        >>> data
        <ImageData mine, test: 2 images of shape [1, 28, 28], 2 classes>
        >>> [label for _, label in data]
        [0, 1]
    """

    name: str
    split: str
    images: Tensor | Images
    labels: Tensor
    classes: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    severities: int = 1

    def __post_init__(self) -> None:
        dtype = getattr(self.images, "dtype", torch.uint8)
        fits = isinstance(dtype, torch.dtype) and (dtype == torch.uint8 or dtype.is_floating_point)
        if not (fits and isinstance(self.images, Tensor | Images)):
            kind = f"{kind_of(self.images)} of {dtype}" if hasattr(self.images, "dtype") else kind_of(self.images)
            raise UsageError(f"{self.name}: expected images to be a uint8 or floating-point tensor, but got {kind}.")
        if not len(self.images.shape):
            raise UsageError(f"{self.name}: expected images of shape [count, ...], but got a single number.")
        if not isinstance(self.labels, Tensor):
            raise UsageError(f"{self.name}: expected labels to be a tensor, but got {kind_of(self.labels)}.")
        if self.labels.dim() != 1 or self.labels.is_floating_point() or self.labels.is_complex():
            kind = f"{self.labels.dtype} of shape {list(self.labels.shape)}"
            raise UsageError(f"{self.name}: expected labels to be integers, one per image, but got {kind}.")
        if len(self.labels) != self.images.shape[0]:
            raise SmoothcertError(
                f"{self.name}: expected one label per image, but got {counted(self.images.shape[0], 'image')} and "
                f"{counted(len(self.labels), 'label')}."
            )
        if not len(self.labels):
            raise SmoothcertError(f"{self.name}: the {self.split} split contains no images.")
        low, high = int(self.labels.min()), int(self.labels.max())
        if high >= MOST_CLASSES:
            raise SmoothcertError(f"Expected labels below {MOST_CLASSES:,}, but got {high:,}.")
        numbers = tuple(map(str, range(high + 1)))
        channels = self.images.shape[1] if len(self.images.shape) == 4 else 1
        defaults = {"classes": numbers, "mean": (0.0,) * channels, "std": (1.0,) * channels}
        for field, default in defaults.items():
            object.__setattr__(self, field, tuple(getattr(self, field)) or default)
        if low < 0 or high >= len(self.classes):
            wrong, expected = (low, ">= 0") if low < 0 else (high, f"from 0 to {len(self.classes) - 1}")
            raise SmoothcertError(f"{self.name}: expected labels {expected}, but got label {wrong}.")

    def __len__(self) -> int:
        return len(self.labels)

    @overload
    def __getitem__(self, index: int) -> tuple[Tensor, int]: ...

    @overload
    def __getitem__(self, index: slice) -> ImageData: ...

    def __getitem__(self, index: int | slice) -> tuple[Tensor, int] | ImageData:
        """Return an input with its label or, for a slice, a subset of the dataset."""
        if isinstance(index, slice):
            return self.subset(range(len(self))[index])
        place = range(len(self))[index]
        return self.floats([place])[0], int(self.labels[place])

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        return (self[place] for place in range(len(self)))

    def __repr__(self) -> str:
        classes = counted(len(self.classes), "class", "classes")
        what = f"{counted(len(self), 'image')} of shape {list(self.shape)}, {classes}"
        return f"<ImageData {self.name}, {self.split}: {what}>"

    @property
    def shape(self) -> torch.Size:
        """Shape of one input; for an image: channels, height, width."""
        return torch.Size(self.images.shape[1:])

    def floats(self, indices: Sequence[int] | Tensor, device: torch.device | str = "cpu") -> Tensor:
        """Return inputs as float32, without noise: 8-bit images scaled to [0, 1], others unchanged."""
        chosen = self.images[torch.as_tensor(indices)].to(device)
        return chosen.float() / 255 if chosen.dtype == torch.uint8 else chosen.float()

    def to(self, device: torch.device | str) -> ImageData:
        """Return a copy on a device, or the dataset itself if its images are read on demand."""
        if not isinstance(self.images, Tensor):
            return self
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))

    def subset(self, indices: Sequence[int] | Tensor) -> ImageData:
        """Return the images at these indices as a dataset in memory."""
        chosen = torch.as_tensor(indices)
        return replace(self, images=self.images[chosen], labels=self.labels[chosen], severities=1)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of shape, images and labels; images read on demand are represented by their own `fingerprint`."""
        digest = hashlib.sha256(str(tuple(self.images.shape)).encode())
        if isinstance(self.images, Tensor):
            images = self.images.cpu().contiguous()
            if images.dtype != torch.uint8:
                digest.update(str(images.dtype).encode())
                images = images.view(torch.uint8)
            digest.update(images.numpy().tobytes())
        else:
            digest.update(self.images.fingerprint())
        digest.update(self.labels.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


@takes(shard=tuple)
def select(count: int, skip: int = 1, limit: int | None = None, shard: tuple[int, int] = (1, 1)) -> list[int]:
    """Return the indices that `skip`, `limit` and `shard` select from `count` images.

    Args:
        count: The number of images.
        skip: Keep every `skip`-th image.
        limit: Keep indices below this limit, like `--max` in the scripts of Cohen et al. It is not the number of images
            to select.
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
    check_count("count", count)
    if [type(number) for number in shard] != [int, int]:
        raise UsageError(f"Expected `shard` to be a pair of ints (I, N), but got {quote(shard)}.")
    part, parts = shard
    check_count("skip", skip)
    if limit is not None:
        check_count("limit", limit)
    if not 1 <= part <= parts:
        raise UsageError(f"Expected `shard` to be (I, N) with I from 1 to N, but got ({part}, {parts}).")
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
    """Return the indices in `data` that the options select.

    In a corrupted dataset, `skip` and `limit` select the same images at each severity. The selections of all severities
    are then joined into one list, and `shard` selects from this list.
    """
    levels = sorted(set(severities or range(1, data.severities + 1)))
    wrong = [level for level in levels if not 1 <= level <= data.severities]
    if wrong:
        raise UsageError(f"Expected `severities` to be from 1 to {data.severities}, but got {wrong[0]}.")
    each = len(data) // data.severities
    images = select(each, skip, limit)
    rows = [(level - 1) * each + image for level in levels for image in images]
    return [rows[position] for position in select(len(rows), shard=shard)]
