"""Reader for NumPy arrays: .npz archives, among them the bundled MNIST excerpt, and .npy files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothcert.errors import SmoothcertError

_IMAGE_KEYS = ("{split}_images", "x_{split}", "images", "x", "data")
_LABEL_KEYS = ("{split}_labels", "y_{split}", "labels", "y", "targets")


def read_npz(path: Path, split: str) -> tuple[Tensor, Tensor, tuple[str, ...] | None]:
    """Return images, labels and, if the archive has an array `classes`, class names.

    The arrays are named `images` and `labels` (or `x` and `y`), prefixed or suffixed with the split if there are two.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            images, labels = (_pick(archive, keys, split, path) for keys in (_IMAGE_KEYS, _LABEL_KEYS))
            classes = tuple(str(name) for name in archive["classes"].flat) if "classes" in archive else None
    except SmoothcertError:
        raise
    except Exception as error:  # a damaged archive can raise anything
        raise SmoothcertError(f"{path} cannot be read as an .npz archive of plain arrays ({error}).") from error
    return _as_images(images, path), as_labels(labels, path), classes


def open_npy(path: Path) -> np.ndarray[Any, Any]:
    """Map an .npy file into memory."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except (OSError, EOFError, ValueError) as error:
        raise SmoothcertError(f"{path} cannot be read as an .npy array ({error}).") from error


def as_labels(labels: np.ndarray[Any, Any], path: Path) -> Tensor:
    """Return labels as int64."""
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise SmoothcertError(f"{path}: expected one integer label per image, but got {labels.dtype} {labels.shape}.")
    return torch.from_numpy(labels.astype(np.int64))


def _pick(archive: Mapping[str, np.ndarray], keys: tuple[str, ...], split: str, path: Path) -> np.ndarray:
    names = [key.format(split=split) for key in keys]
    for name in names:
        if name in archive:
            return archive[name]
    raise SmoothcertError(f"{path} has no array named {' or '.join(names)}.")


def _as_images(images: np.ndarray, path: Path) -> Tensor:
    """Return 8-bit images of any common layout as [count, channels, height, width], and floats as they are."""
    if images.dtype.kind == "f":
        return torch.from_numpy(images.astype(np.float32))
    if images.dtype != np.uint8:
        raise SmoothcertError(f"{path}: expected images as uint8 from 0 to 255, or floats, but got {images.dtype}.")
    if images.ndim == 3:
        return torch.from_numpy(images).unsqueeze(1)
    if images.ndim == 4 and images.shape[3] in (1, 3):
        return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    if images.ndim == 4 and images.shape[1] in (1, 3):
        return torch.from_numpy(images)
    raise SmoothcertError(f"{path}: expected images with 1 or 3 channels, but got an array of shape {images.shape}.")
