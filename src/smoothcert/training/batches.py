"""Mini-batches from a dataset in device memory, augmented on the device by batched tensor operations.

`ResidentData` is one of two batch sources; the other, `StreamedData`, reads data that does not fit into memory. Method
`stream` takes a schedule with an entry `(step, share, indices)` per step, where `indices` are the images in this rank's
share of the mini-batch, on the device `home`. It yields the inputs of each step. Method `batch` turns them into images
in [0, 1], labels and soft labels. Augmentation depends only on the seed, the step and the position in the mini-batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from smoothcert.distributed.ranks import BatchShare
from smoothcert.philox import Purpose, uniform

_PADDING = 4

Inputs = tuple[Tensor, ...]
BatchSchedule = Iterable[tuple[int, BatchShare, Tensor]]
Batch = tuple[Tensor, Tensor, Tensor | None]


@dataclass(frozen=True)
class ResidentData:
    """A dataset in device memory: images as uint8 or floats, labels and, if the method uses them, soft labels."""

    images: Tensor
    labels: Tensor
    soft: Tensor | None
    augmentation: str

    @property
    def device(self) -> torch.device:
        """Device of all tensors."""
        return self.labels.device

    home = device

    def stream(self, schedule: BatchSchedule) -> Iterator[Inputs]:
        """Yield the image indices of each step."""
        for _, _, indices in schedule:
            yield (indices,)

    def batch(self, inputs: Inputs, seed: int, step: Tensor | int, first: int = 0) -> Batch:
        """Return the images, labels and soft labels at the indices in `inputs`, with the images augmented."""
        (indices,) = inputs
        images = self.images[indices]
        if self.augmentation != "none":
            images = AUGMENTATIONS[self.augmentation](images, seed, step, first)
        return (
            as_floats(images, self.images.dtype),
            self.labels[indices],
            None if self.soft is None else self.soft[indices],
        )


def as_floats(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Return images as float32, scaled to [0, 1] if the dataset's `dtype` is uint8.

    `dtype` is needed because augmentation may already have converted uint8 images to floats.
    """
    return images.float() / 255 if dtype == torch.uint8 else images.float()


def crop_and_flip(images: Tensor, seed: int, step: Tensor | int, first: int = 0) -> Tensor:
    """Shift each image randomly by up to 4 pixels, padding with zeros, and mirror it with probability 1/2."""
    count, _, height, width = images.shape
    rows = torch.arange(count, device=images.device)
    draws = uniform(seed, (first + rows, step, Purpose.AUGMENTATION), 3, device=images.device)
    top, left = ((draws[:, i] * (2 * _PADDING + 1)).long() for i in (0, 1))
    down = top.unsqueeze(1) + torch.arange(height, device=images.device)
    across = torch.arange(width, device=images.device)
    across = left.unsqueeze(1) + torch.where(draws[:, 2:] < 0.5, across.flip(0), across)
    padded = F.pad(images, (_PADDING,) * 4)
    return padded.permute(0, 2, 3, 1)[rows.view(-1, 1, 1), down.unsqueeze(2), across.unsqueeze(1)].permute(0, 3, 1, 2)


def resized_crop_and_flip(images: Tensor, seed: int, step: Tensor | int, first: int = 0) -> Tensor:
    """Enlarge a random crop of each image to the image's size, and mirror it with probability 1/2.

    A crop covers 8 to 100 % of the image's area; its aspect ratio is between 3:4 and 4:3.
    """
    rows = torch.arange(first, first + len(images), device=images.device)
    draws = uniform(seed, (rows, step, Purpose.AUGMENTATION), 5, device=images.device)
    area, ratio = 0.08 + 0.92 * draws[:, 0], torch.exp((2 * draws[:, 1] - 1) * math.log(4 / 3))
    width, height = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
    shift_x, shift_y = (1 - width) * (2 * draws[:, 2] - 1), (1 - height) * (2 * draws[:, 3] - 1)
    flip, zero = torch.where(draws[:, 4] < 0.5, -1.0, 1.0), torch.zeros_like(width)
    transform = torch.stack((width * flip, zero, shift_x, zero, height, shift_y), dim=1).view(-1, 2, 3)
    grid = F.affine_grid(transform, list(images.shape), align_corners=False)
    return F.grid_sample(images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)


AUGMENTATIONS = {"crop-flip": crop_and_flip, "resized-crop-flip": resized_crop_and_flip}
