"""Reader for the idx format of MNIST and Fashion-MNIST, gzipped or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from smoothcert.data.files import Arrays, folders, read_file
from smoothcert.errors import SmoothcertError

_PREFIX = {"train": "train", "test": "t10k"}


def find_idx(places: tuple[str, ...], root: Path, split: str) -> Callable[[], Arrays] | None:
    """Return a function that reads a split, or None if its files are in none of the `places` below `root`."""
    for folder in folders(root, places):
        images = _find(folder, f"{_PREFIX[split]}-images", 3)
        labels = _find(folder, f"{_PREFIX[split]}-labels", 1)
        if images and labels:
            return partial(_read, images, labels)
    return None


def _read(images: Path, labels: Path) -> Arrays:
    pixels = torch.from_numpy(_parse(read_file(images), images, 3)).unsqueeze(1)
    return pixels, torch.from_numpy(_parse(read_file(labels), labels, 1)).long()


def _find(folder: Path, stem: str, dimensions: int) -> Path | None:
    names = (f"{stem}{mark}idx{dimensions}-ubyte{suffix}" for mark in "-." for suffix in ("", ".gz"))
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _parse(content: bytes, path: Path, dimensions: int) -> np.ndarray:
    """Decode an idx file of unsigned bytes: 0, 0, 8, the number of dimensions, their sizes, and the values."""
    header = 4 + 4 * dimensions
    shape = tuple(int.from_bytes(content[start : start + 4], "big") for start in range(4, header, 4))
    if content[:4] != bytes((0, 0, 8, dimensions)) or len(content) != header + math.prod(shape):
        raise SmoothcertError(
            f"{path} is not a complete {dimensions}-dimensional idx file of unsigned bytes; download it again."
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape).copy()
