"""Soft labels in a sparse format: one file that is mapped into memory and read on demand.

The safetensors file contains three arrays. For each image in turn, `classes` and `votes` have an entry for every class
with votes; `offsets` [images + 1] contains the position of each image's first entry. At most 272 classes are kept per
image, those with the most votes; few images have votes for more classes. For ImageNet (1,281,167 images, 1,000
classes), the file takes at most 1.41 GB.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor

from smoothcert.errors import SmoothcertError, first_line
from smoothcert.runtime.atomic_files import replacing

MOST_CLASSES = 272


class PackedLabels:
    """Soft labels, indexed by image: `labels[indices]` is float32 [len(indices), classes] with rows that sum to 1."""

    def __init__(self, path: Path, num_classes: int) -> None:
        self.path, self.num_classes = path, num_classes
        try:
            with safe_open(path, "numpy") as file:
                self.offsets = file.get_tensor("offsets")
                self.classes, self.votes = file.get_slice("classes"), file.get_slice("votes")  # read on demand
        except (OSError, SafetensorError) as error:
            raise SmoothcertError(
                f"{path} cannot be read ({first_line(error)}); if it is damaged, delete it to regenerate it."
            ) from error
        offsets, ends = self.offsets, (self.classes.get_shape(), self.votes.get_shape())
        whole = offsets.ndim == 1 and offsets.dtype == np.int64 and len(offsets) > 0
        if not whole or ends != ([offsets[-1]], [offsets[-1]]) or offsets[0] or (np.diff(offsets) < 0).any():
            raise SmoothcertError(f"{path} is damaged: its offsets do not match its votes; delete it to regenerate it.")

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedLabels, (self.path, self.num_classes)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, indices: Tensor) -> Tensor:
        """Return the soft labels of the images with these indices."""
        rows = np.zeros((len(indices), self.num_classes), dtype=np.float32)
        for row, index in zip(rows, indices.tolist(), strict=True):
            first, end = self.offsets[index : index + 2].tolist()
            votes, classes = self.votes[first:end].astype(np.float32), self.classes[first:end].astype(np.int64)
            if (classes >= self.num_classes).any():
                raise SmoothcertError(f"{self.path} contains votes for unknown classes; delete it to regenerate it.")
            row[classes] = votes / votes.sum()
        return torch.from_numpy(rows)

    def dense(self) -> Tensor:
        """Return the soft labels of all images as one tensor."""
        return self[torch.arange(len(self))]


def read_votes(counts: Path) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each image's index and votes, as an array of pairs (class, votes), from the counts file of predictions."""
    with counts.open(encoding="utf-8") as lines:
        next(lines, None)
        for line in lines:
            index, votes = line.rstrip("\n").split("\t")
            yield int(index), np.array(votes.replace(":", " ").split(), dtype=np.int64).reshape(-1, 2)


def pack_labels(counts: Path, images: int, out: Path) -> None:
    """Write the vote counts in the file `counts` to the packed file `out`, atomically."""
    offsets = np.zeros(images + 1, dtype=np.int64)
    classes, votes = [], []
    for number, (_, pairs) in enumerate(read_votes(counts)):
        kept = pairs[:MOST_CLASSES]  # the file lists classes by descending votes
        classes.append(kept[:, 0].astype(np.uint16))
        votes.append(kept[:, 1].astype(np.uint32))
        offsets[number + 1] = offsets[number] + len(kept)
    flat = np.concatenate(votes)
    narrow = flat.astype(np.uint16) if int(flat.max()) < 1 << 16 else flat
    with replacing(out) as part:
        save_file({"offsets": offsets, "classes": np.concatenate(classes), "votes": narrow}, part)
