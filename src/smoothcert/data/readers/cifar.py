"""Reader for CIFAR-10 and CIFAR-100: the Python and the binary version, unpacked or in the official archive."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from smoothcert.data.files import Arrays, folders, read_file, read_members
from smoothcert.errors import SmoothcertError, first_line

_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class CifarLayout:
    """File names and label format of CIFAR-10 or CIFAR-100."""

    number: int
    unpacked: tuple[str, str]
    files: Mapping[str, tuple[str, ...]]
    label_key: bytes
    label_bytes: int


_BATCHES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}
CIFAR10 = CifarLayout(10, ("cifar-10-batches-py", "cifar-10-batches-bin"), _BATCHES, b"labels", 1)
_SPLITS = {"train": ("train",), "test": ("test",)}
CIFAR100 = CifarLayout(100, ("cifar-100-python", "cifar-100-binary"), _SPLITS, b"fine_labels", 2)


def find_cifar(layout: CifarLayout, root: Path, split: str) -> Callable[[], Arrays] | None:
    """Return a function that reads a split, or None if `root` contains neither the Python nor the binary files."""
    own = [spelling.format(layout.number) for spelling in ("cifar{}", "CIFAR{}", "cifar-{}")]
    nested = (f"{parent}/{folder}" for parent in own for folder in layout.unpacked)
    for folder in folders(root, (*layout.unpacked, *own, ".", *nested)):
        for suffix, version in ((".bin", "binary"), ("", "python")):
            files = [name + suffix for name in layout.files[split]]
            archive = folder / f"cifar-{layout.number}-{version}.tar.gz"
            if (folder / files[0]).is_file():
                return partial(_read, layout, folder, files)
            if archive.is_file():
                return partial(_read, layout, archive, files)
    return None


def _read(layout: CifarLayout, place: Path, files: list[str]) -> Arrays:
    contents = [read_file(place / file) for file in files] if place.is_dir() else read_members(place, files)
    parse = _parse_binary if files[0].endswith(".bin") else _parse_pickle
    parts = [parse(layout, content, f"{place} ({file})") for file, content in zip(files, contents, strict=True)]
    images = np.concatenate([images for images, _ in parts]).reshape(-1, 3, 32, 32)
    return torch.from_numpy(images), torch.from_numpy(np.concatenate([labels for _, labels in parts]))


def _parse_binary(layout: CifarLayout, content: bytes, where: str) -> tuple[np.ndarray, np.ndarray]:
    record = layout.label_bytes + _PIXELS
    if not content or len(content) % record:
        raise SmoothcertError(
            f"{where}: expected {record:,} bytes per image, but got {len(content):,} in total; download it again."
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, record)
    return rows[:, layout.label_bytes :], rows[:, layout.label_bytes - 1].astype(np.int64)


def _parse_pickle(layout: CifarLayout, content: bytes, where: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        batch = _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
        data, labels = np.asarray(batch[b"data"]), np.asarray(batch[layout.label_key])
    except Exception as error:  # a damaged pickle can raise anything
        reason = first_line(error)[:200] or type(error).__name__
        raise SmoothcertError(f"{where} is damaged or was tampered with ({reason}); download it again.") from error
    kinds = data.dtype == np.uint8 and labels.dtype.kind in "iu"
    if not kinds or labels.ndim != 1 or data.shape != (len(labels), _PIXELS):
        raise SmoothcertError(f"{where}: expected {_PIXELS} bytes and one integer label per image; download it again.")
    return data, labels.astype(np.int64)


class _ArrayUnpickler(pickle._Unpickler):
    """Unpickler that accepts only arrays and built-in containers, since any other class could run code.

    It extends the unpickler written in Python, since the one in C allocates memory for as many objects as a file
    declares.
    """

    _ALLOWED: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): lambda *arguments: np.empty(0, np.uint8),  # filled later
        ("numpy._core.multiarray", "_reconstruct"): lambda *arguments: np.empty(0, np.uint8),
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): lambda text, encoding: text.encode("latin-1"),
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"it contains {module}.{name}")
        return self._ALLOWED[module, name]
