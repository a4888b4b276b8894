"""Images in NumPy's .npz archives: a user's own, and the MNIST excerpt that travels with the package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from smoothcert.errors import SmoothcertError

_IMAGE_KEYS = ("{split}_images", "x_{split}", "images", "x", "data")
_LABEL_KEYS = ("{split}_labels", "y_{split}", "labels", "y", "targets")


def read_npz(path: Path, split: str) -> tuple[Tensor, Tensor, tuple[str, ...] | None]:
    """Return images, labels and, where the file holds them, class names.

    The arrays are called images and labels (or x and y), with the split before or after them if there are two.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            images = _pick(archive, _IMAGE_KEYS, split, path)
            labels = _pick(archive, _LABEL_KEYS, split, path)
            classes = tuple(str(name) for name in archive["classes"].flat) if "classes" in archive else None
    except SmoothcertError:
        raise
    except Exception as error:  # a damaged archive can fail in any way at all
        raise SmoothcertError(f"{path} cannot be read as an .npz archive of plain arrays ({error}).") from error
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise SmoothcertError(f"{path}: expected one whole number a label, but got {labels.dtype} {labels.shape}.")
    return as_images(images, path), torch.from_numpy(labels.astype(np.int64)), classes


def _pick(archive: Mapping[str, np.ndarray], keys: tuple[str, ...], split: str, path: Path) -> np.ndarray:
    names = [key.format(split=split) for key in keys]
    for name in names:
        if name in archive:
            return archive[name]
    raise SmoothcertError(f"{path} holds no array named {' or '.join(names)}.")


def as_images(images: np.ndarray, path: Path) -> Tensor:
    """Bring uint8 images of any usual layout to [count, channels, height, width]."""
    if images.dtype != np.uint8:
        raise SmoothcertError(f"{path}: expected images as uint8 from 0 to 255, but got {images.dtype}.")
    if images.ndim == 3:
        return torch.from_numpy(images).unsqueeze(1)
    if images.ndim == 4 and images.shape[3] in (1, 3):
        return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    if images.ndim == 4 and images.shape[1] in (1, 3):
        return torch.from_numpy(images)
    raise SmoothcertError(f"{path}: expected images of 1 or 3 channels, but got an array of shape {images.shape}.")
