"""Reader for NumPy files: .npz archives, including the bundled MNIST subset, and .npy files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothcert.dataset_names import MOST_CLASSES
from smoothcert.errors import SmoothcertError
from smoothcert.runtime.bounded_files import check_members

_LARGEST_HEADER = 10_000  # bytes
_IMAGE_KEYS = ("{split}_images", "x_{split}", "images", "x", "data")
_LABEL_KEYS = ("{split}_labels", "y_{split}", "labels", "y", "targets")


def read_npz(path: Path, split: str) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Read images, labels and class names; there are no names if the archive contains no array `classes`.

    The arrays are named `images` and `labels`, `x` and `y`, or `data` and `targets`. In an archive of several splits,
    the names of arrays include the split: `train_images` and `train_labels`, or `x_train` and `y_train`.
    """
    check_members(path)
    try:
        with np.load(path, allow_pickle=False, max_header_size=_LARGEST_HEADER) as archive:
            images, labels = (_pick(archive, keys, split, path) for keys in (_IMAGE_KEYS, _LABEL_KEYS))
            classes = tuple(map(str, _check_names(archive.get("classes", np.empty(0, str)), path)))
    except SmoothcertError:
        raise
    except Exception as error:  # a damaged archive can raise anything; the message may advise unsafe loading
        raise SmoothcertError(f"{path} is damaged, or contains something other than plain arrays.") from error
    return _as_images(images, path), as_labels(labels, path), classes


def _check_names(names: Any, path: Path) -> Any:
    listed = isinstance(names, np.ndarray) and names.ndim == 1 and names.dtype.kind in "US"
    if not (listed and len(names) <= MOST_CLASSES):
        raise SmoothcertError(f"{path}: expected `classes` to be an array of at most {MOST_CLASSES:,} names.")
    return names


def open_npy(path: Path) -> np.ndarray[Any, Any]:
    """Map an .npy file into memory."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False, max_header_size=_LARGEST_HEADER)
    except Exception as error:  # a damaged file can raise anything, as above
        raise SmoothcertError(f"{path} is damaged, or is not an .npy file with an array of numbers.") from error
    if not isinstance(array, np.ndarray):
        raise SmoothcertError(f"{path} is an .npz archive, not an .npy file; rename it.")
    return array


def as_labels(labels: np.ndarray[Any, Any], path: Path) -> Tensor:
    """Convert labels to int64; raise an error that names the file `path` if they are not integers."""
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise SmoothcertError(
            f"{path}: expected one integer label per image, but got {labels.dtype} of shape {list(labels.shape)}."
        )
    if labels.dtype.kind == "u" and (labels > np.iinfo(np.int64).max).any():
        raise SmoothcertError(f"{path}: expected labels below 2**63, but got {labels.max()}.")
    return torch.from_numpy(labels.astype(np.int64))


def _pick(archive: Mapping[str, np.ndarray], keys: tuple[str, ...], split: str, path: Path) -> np.ndarray:
    names = [key.format(split=split) for key in keys]
    for name in names:
        if name in archive:
            found = archive[name]
            if not isinstance(found, np.ndarray):  # NumPy returns other members as bytes
                raise SmoothcertError(f"{path}: expected `{name}` to be an array, but got something else.")
            return found
    raise SmoothcertError(f"{path} has no array named {' or '.join(names)}.")


def _as_images(images: np.ndarray, path: Path) -> Tensor:
    """Convert 8-bit images of any common layout to [count, channels, height, width], and floats to float32."""
    if images.dtype.kind == "f":
        return torch.from_numpy(images.astype(np.float32))
    if images.dtype != np.uint8:
        raise SmoothcertError(f"{path}: expected images to be uint8 from 0 to 255, or floats, but got {images.dtype}.")
    if images.ndim == 3:
        return torch.from_numpy(images).unsqueeze(1)
    if images.ndim == 4 and images.shape[3] in (1, 3):
        return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    if images.ndim == 4 and images.shape[1] in (1, 3):
        return torch.from_numpy(images)
    raise SmoothcertError(
        f"{path}: expected images with 1 or 3 channels, but got an array of shape {list(images.shape)}."
    )
