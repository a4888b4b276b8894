"""Mini-batches of data that worker processes read on demand, ahead of the training steps."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from smoothcert.data.image_data import ImageData
from smoothcert.data.readers.folder import FolderImages, view_draws
from smoothcert.errors import UsageError
from smoothcert.training.batches import AUGMENTATIONS, Batch, BatchSchedule, Inputs, ResidentData, as_floats
from smoothcert.training.packed_labels import PackedLabels

_MOST_RESIDENT = 4 * 2**30  # bytes of images that are decoded once and kept in memory
_MOST_WORKERS = 16


@dataclass(frozen=True, eq=False)
class StreamedData(Dataset[Inputs]):
    """A dataset of images or other inputs that is read on demand, one mini-batch at a time.

    Worker processes read images, labels and soft labels; images are scaled on the device.
    """

    data: ImageData
    device: torch.device
    augmentation: str
    soft: Tensor | PackedLabels | None
    seed: int
    workers: int
    home: ClassVar[torch.device] = torch.device("cpu")

    def stream(self, schedule: BatchSchedule) -> Iterator[Inputs]:
        """Yield the images, labels and soft labels of each step."""
        pinned = self.device.type == "cuda"
        loader = DataLoader(
            self,
            batch_size=None,
            sampler=((step, share.first, indices) for step, share, indices in schedule),
            num_workers=self.workers,
            pin_memory=pinned,
            worker_init_fn=_ignore_signals,
        )
        for inputs in loader:
            yield tuple(value.to(self.device, non_blocking=pinned) for value in inputs)

    def batch(self, inputs: Inputs, seed: int, step: Tensor | int, first: int = 0) -> Batch:
        """Return images in [0, 1], labels and soft labels. Augment images, unless a worker has done so."""
        images, labels, *soft = inputs
        dtype = images.dtype
        if self.augmentation != "none" and not self._crops_in_workers:
            images = AUGMENTATIONS[self.augmentation](images, seed, step, first)
        return as_floats(images, dtype), labels, soft[0] if soft else None

    @property
    def _crops_in_workers(self) -> bool:
        """True if workers crop images at random while decoding them, before they are resized to one size."""
        return self.augmentation == "resized-crop-flip" and isinstance(self.data.images, FolderImages)

    def __getitem__(self, address: tuple[int, int, Tensor]) -> Inputs:
        """Read a step's images, labels and soft labels. `address` is (step, position of the first image, indices)."""
        step, first, indices = address
        images = self.data.images
        if self._crops_in_workers and isinstance(images, FolderImages):
            draws = view_draws(self.seed, step, torch.arange(first, first + len(indices)))
            pixels, decoded = images.views(indices.tolist(), draws)
            used = torch.tensor(decoded)
        else:
            pixels, used = images[indices], indices
        return pixels, self.data.labels[used], *(() if self.soft is None else (self.soft[used],))


def _ignore_signals(worker: int) -> None:
    """Ignore Ctrl-C and SIGTERM in workers, because the parent process may need more images to finish its step."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


BatchSource = ResidentData | StreamedData


def choose_source(
    data: ImageData,
    device: torch.device,
    augmentation: str,
    soft: Tensor | PackedLabels | None = None,
    *,
    seed: int = 0,
    workers: int | None = None,
) -> BatchSource:
    """Return `StreamedData` for data that is too large for memory or cropped while decoding, else `ResidentData`."""
    if augmentation != "none" and len(data.shape) != 3:
        inputs = f"inputs of shape {list(data.shape)}, which are not images"
        raise UsageError(f"Expected `augmentation` to be 'none' for {inputs}, but got {augmentation!r}.")
    if not isinstance(data.images, Tensor):
        item = data.images[torch.arange(1)]
        large = len(data) * item.numel() * item.element_size() > _MOST_RESIDENT
        if large or (augmentation == "resized-crop-flip" and isinstance(data.images, FolderImages)):
            count = usual_workers() if workers is None else workers
            return StreamedData(data, device, augmentation, soft, seed, count)
    images = data.images if isinstance(data.images, Tensor) else data.images[torch.arange(len(data))]
    soft = soft.dense() if isinstance(soft, PackedLabels) else soft
    placed_soft = None if soft is None else soft.to(device)
    return ResidentData(images.to(device), data.labels.to(device), placed_soft, augmentation)


def usual_workers() -> int:
    """Return the default number of workers: this process's share of the available cores, from 1 to 16."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(_MOST_WORKERS, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
