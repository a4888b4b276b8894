"""Reader for corrupted images, one array per corruption.

For the corruption fog, for example, the files are `fog.npy` and `labels.npy` (as in CIFAR-10-C), `fog/test_images.npy`
and `fog/test_labels.npy` (as in MNIST-C), or an archive `fog.npz`. An array contains all images at severity 1, then all
at severity 2, and so on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from smoothcert.data.image_data import Images
from smoothcert.data.readers.arrays import as_labels, open_npy, read_npz
from smoothcert.errors import SmoothcertError

_ROWS_IN_FINGERPRINT = 64


@dataclass(frozen=True)
class StoredImages:
    """Images in a file; `read` returns the requested rows."""

    shape: torch.Size
    read: Callable[[Tensor], Tensor]

    def __getitem__(self, indices: Tensor, /) -> Tensor:
        return self.read(indices)

    def fingerprint(self) -> bytes:
        """Hash a sample of rows spread over the file."""
        rows = torch.from_numpy(np.linspace(0, self.shape[0] - 1, _ROWS_IN_FINGERPRINT).astype(int))
        return hashlib.sha256(np.moveaxis(self[rows].numpy(), 1, -1).tobytes()).digest()


@lru_cache(maxsize=1)  # only the archive used last is kept in memory
def _unpack(path: Path) -> tuple[Tensor, Tensor]:
    return read_npz(path, "test")[:2]


def _map_npy(path: Path) -> StoredImages:
    """Map an .npy file into memory, so that only the requested rows are read."""
    array = open_npy(path)
    if array.ndim == 3:
        array = array[..., None]
    if array.dtype != np.uint8 or array.ndim != 4:
        got = f"{array.dtype} {list(array.shape)}"
        raise SmoothcertError(f"{path}: expected uint8 images [rows, height, width, channels], but got {got}.")
    array = np.moveaxis(array, -1, 1)
    return StoredImages(
        torch.Size(array.shape), lambda rows: torch.from_numpy(np.ascontiguousarray(array[np.asarray(rows)]))
    )


def find_corruption(folder: Path, name: str) -> Path | None:
    """Return the file with the images of a corruption, or None if there is no such file in the folder."""
    choices = (folder / f"{name}.npy", folder / name / "test_images.npy", folder / f"{name}.npz")
    return next((path for path in choices if path.is_file()), None)


def read_corruption(path: Path) -> tuple[Images, Tensor]:
    """Read the images and labels of a file found by `find_corruption`."""
    if path.suffix == ".npz":
        images, labels = _unpack(path)
        return StoredImages(images.shape, lambda rows: _unpack(path)[0][rows]), labels
    file = path.with_name("test_labels.npy" if path.name == "test_images.npy" else "labels.npy")
    if not file.is_file():
        raise SmoothcertError(f"{path} has no labels: {file} does not exist.")
    return _map_npy(path), as_labels(open_npy(file), file)
