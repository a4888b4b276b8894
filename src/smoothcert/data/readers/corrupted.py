"""Reader for corrupted images: one array per corruption, in the layout of CIFAR-10-C, of MNIST-C, or as .npz archives.

These are `fog.npy` next to `labels.npy`, `fog/test_images.npy` next to `fog/test_labels.npy`, and `fog.npz`. The rows
are all images at severity 1, then at severity 2, and so on.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from smoothcert.data.image_data import Images
from smoothcert.data.readers.arrays import as_labels, open_npy, read_npz
from smoothcert.errors import SmoothcertError

_ROWS_IN_FINGERPRINT = 64


class StoredImages:
    """Images in an .npy file, mapped into memory so that only the requested rows are read."""

    def __init__(self, path: Path) -> None:
        self.array = open_npy(path)
        if self.array.ndim == 3:
            self.array = self.array[..., None]
        if self.array.dtype != np.uint8 or self.array.ndim != 4:
            raise SmoothcertError(
                f"{path}: expected uint8 images [rows, height, width, channels], "
                f"but got {self.array.dtype} {list(self.array.shape)}."
            )
        rows, height, width, channels = self.array.shape
        self.shape = torch.Size((rows, channels, height, width))

    def __getitem__(self, indices: Tensor, /) -> Tensor:
        chosen = self.array[np.asarray(indices)]
        return torch.from_numpy(np.ascontiguousarray(np.moveaxis(chosen, -1, -3)))

    def fingerprint(self) -> bytes:
        """Hash a sample of rows spread over the file."""
        return _fingerprint(self)


class PackedImages:
    """Images in an .npz archive; only the archive used last is kept in memory."""

    def __init__(self, path: Path) -> None:
        self.path, self.shape = path, _unpack(path)[0].shape

    def __getitem__(self, indices: Tensor, /) -> Tensor:
        return _unpack(self.path)[0][indices]

    def fingerprint(self) -> bytes:
        """Hash the same rows as for an .npy file."""
        return _fingerprint(self)


@lru_cache(maxsize=1)
def _unpack(path: Path) -> tuple[Tensor, Tensor]:
    return read_npz(path, "test")[:2]


def _fingerprint(images: Images) -> bytes:
    rows = torch.from_numpy(np.linspace(0, images.shape[0] - 1, _ROWS_IN_FINGERPRINT).astype(int))
    return hashlib.sha256(np.moveaxis(images[rows].numpy(), 1, -1).tobytes()).digest()


def find_corruption(folder: Path, name: str) -> Path | None:
    """Return the file with the images of a corruption, or None if the folder has no such file."""
    choices = (folder / f"{name}.npy", folder / name / "test_images.npy", folder / f"{name}.npz")
    return next((path for path in choices if path.is_file()), None)


def read_corruption(path: Path) -> tuple[Images, Tensor]:
    """Return the images and labels of a file found by `find_corruption`."""
    if path.suffix == ".npz":
        return PackedImages(path), _unpack(path)[1]
    labels = path.with_name("test_labels.npy" if path.name == "test_images.npy" else "labels.npy")
    if not labels.is_file():
        raise SmoothcertError(f"{path} has no labels: {labels} does not exist.")
    return StoredImages(path), as_labels(open_npy(labels), labels)
