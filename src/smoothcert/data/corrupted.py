"""Sets of corrupted images as users have them: published, made here, or only partly there.

A corruption is one array: `fog.npy` with `labels.npy` beside it (CIFAR-10-C), `fog/test_images.npy` with
`fog/test_labels.npy` (MNIST-C), or `fog.npz`. Its rows are the images at severity 1, then at 2, and so on. Arrays are
mapped, so that only the rows asked for are read; of archives one at a time is in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothcert.data.arrays import read_npz
from smoothcert.data.corruptions.making import read_about
from smoothcert.data.corruptions.suites import suite_for
from smoothcert.data.files import data_dir, folders
from smoothcert.data.image_data import ImageData, Images
from smoothcert.data.registry import DATASETS, load_dataset
from smoothcert.dataset_names import CORRUPTED, DIMENSIONS, canonical_name
from smoothcert.errors import SmoothcertError, unknown_name

_PUBLISHED = {"cifar10-c": "CIFAR-10-C", "cifar100-c": "CIFAR-100-C", "mnist-c": "mnist_c"}
_ROWS_IN_FINGERPRINT = 64


class StoredImages:
    """Images of an .npy file, mapped into memory."""

    def __init__(self, path: Path) -> None:
        self.array = _open_array(path)
        if self.array.ndim == 3:
            self.array = self.array[..., None]
        if self.array.dtype != np.uint8 or self.array.ndim != 4:
            raise SmoothcertError(
                f"{path}: expected uint8 images [rows, height, width, channels], "
                f"but got {self.array.dtype} {list(self.array.shape)}."
            )

    @property
    def shape(self) -> torch.Size:
        """[rows, channels, height, width]."""
        rows, height, width, channels = self.array.shape
        return torch.Size((rows, channels, height, width))

    def __getitem__(self, indices: Tensor, /) -> Tensor:
        """Return the images at these rows."""
        chosen = self.array[np.asarray(indices)]
        return torch.from_numpy(np.ascontiguousarray(np.moveaxis(chosen, -1, -3)))

    def fingerprint(self) -> bytes:
        """Hash rows spread over the whole file."""
        return _fingerprint(self)


class PackedImages:
    """Images of an .npz archive, unpacked when asked for; only the last archive stays in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shape = _unpack(path)[0].shape

    def __getitem__(self, indices: Tensor, /) -> Tensor:
        """Return the images at these rows."""
        return _unpack(self.path)[0][indices]

    def fingerprint(self) -> bytes:
        """Hash the rows that an .npy file's fingerprint has."""
        return _fingerprint(self)


@lru_cache(maxsize=1)
def _unpack(path: Path) -> tuple[Tensor, Tensor]:
    return read_npz(path, "test")[:2]


def _fingerprint(images: Images) -> bytes:
    rows = torch.from_numpy(np.linspace(0, images.shape[0] - 1, _ROWS_IN_FINGERPRINT).astype(int))
    return hashlib.sha256(np.moveaxis(images[rows].numpy(), 1, -1).tobytes()).digest()


@dataclass(frozen=True)
class CorruptedSet:
    """A folder of corrupted images: its name, its corruptions, and the clean set that it was made from."""

    name: str
    folder: Path
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    shape: tuple[int, ...]

    @cached_property
    def about(self) -> dict[str, Any]:
        """What making the folder left there, where it was made here."""
        return read_about(self.folder) or {}

    @property
    def corruptions(self) -> list[str]:
        """The corruptions whose mean counts."""
        return list(suite_for(self.shape[0]).corruptions)

    @property
    def there(self) -> list[str]:
        """Those of them that are in the folder."""
        return [name for name in self.corruptions if _layout(self.folder, name)]

    @property
    def missing(self) -> list[str]:
        """Those of them that are not."""
        return [name for name in self.corruptions if name not in self.there]

    def find_clean(self, root: str | Path | None = None) -> ImageData | None:
        """Return the images before they were corrupted, row for row, where they can be found."""
        if _layout(self.folder, "identity"):
            return self.load("identity")
        made_from = self.about.get("made_from", {})
        try:
            clean = load_dataset(made_from.get("name", self.name.removesuffix("-c")), "test", root)
        except SmoothcertError:
            return None
        if made_from:
            return clean if clean.fingerprint == made_from["sha256"] else None
        images = self.load(self.there[0])
        return clean if len(clean) * images.severities == len(images) else None

    def load(self, corruption: str) -> ImageData:
        """Return one corruption's images at all severities."""
        layout = _layout(self.folder, corruption)
        if layout is None:
            held_out = suite_for(self.shape[0]).held_out
            if corruption not in (*self.corruptions, *held_out, "identity"):
                raise unknown_name("corruption", corruption, [*self.corruptions, *held_out])
            raise SmoothcertError(f"{self.folder} holds no {corruption}; there are {', '.join(self.there) or 'none'}.")
        images, labels = layout.read()
        file = layout.images
        if tuple(images.shape[1:]) != self.shape:
            raise SmoothcertError(
                f"{file}: expected images of shape {list(self.shape)}, but got {list(images.shape[1:])}."
            )
        if images.shape[0] != len(labels):
            raise SmoothcertError(f"{file} has {images.shape[0]:,} rows, but there are {len(labels):,} labels.")
        severities = 1 if corruption == "identity" else suite_for(self.shape[0]).severities
        _check_severities(file, labels, severities)
        name = f"{self.name}/{corruption}"
        return ImageData(name, "test", images, labels, self.classes, self.mean, self.std, severities)


@dataclass(frozen=True)
class _Layout:
    images: Path
    labels: Path | None

    def read(self) -> tuple[Images, Tensor]:
        if self.labels is None:
            return PackedImages(self.images), _unpack(self.images)[1]
        if not self.labels.is_file():
            raise SmoothcertError(f"{self.images} has no labels: {self.labels} is not there.")
        labels = _open_array(self.labels)
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise SmoothcertError(
                f"{self.labels}: expected one whole number a label, but got {labels.dtype} {labels.shape}."
            )
        return StoredImages(self.images), torch.from_numpy(labels.astype(np.int64))


def _layout(folder: Path, name: str) -> _Layout | None:
    choices = (
        _Layout(folder / f"{name}.npy", folder / "labels.npy"),
        _Layout(folder / name / "test_images.npy", folder / name / "test_labels.npy"),
        _Layout(folder / f"{name}.npz", None),
    )
    return next((choice for choice in choices if choice.images.is_file()), None)


def _open_array(path: Path) -> np.ndarray[Any, Any]:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except (OSError, EOFError, ValueError) as error:
        raise SmoothcertError(f"{path} cannot be read as an .npy array ({error}).") from error


def _check_severities(file: Path, labels: Tensor, severities: int) -> None:
    each, rest = divmod(len(labels), severities)
    if rest:
        raise SmoothcertError(
            f"{file} has {len(labels):,} rows, which is not the same number at {severities} severities."
        )
    if not torch.equal(labels, labels[:each].repeat(severities)):
        raise SmoothcertError(
            f"{file}: the labels of its {severities} severities differ; they are not the same images."
        )


def find_corrupted(name: str, root: str | Path | None = None) -> CorruptedSet | None:
    """Return a set of corrupted images by its name, or a folder of one by its path; None where it is neither."""
    name = canonical_name(name)
    if name not in CORRUPTED:
        folder = Path(name).expanduser()
        return _by_path(folder) if folder.is_dir() else None
    base = DATASETS[name.removesuffix("-c")]
    spellings = (name, _PUBLISHED.get(name, name), name.replace("_", "-"), name.replace("-", "_"))
    channels = len(base.mean)
    places = folders(data_dir(root), dict.fromkeys(spellings))
    found = next((folder for folder in places if _names_in(folder, channels)), None)
    if found is None:
        get = f"run `smoothcert data get {name}`, or " if name in _PUBLISHED else ""
        raise SmoothcertError(
            f"{name} is not in {data_dir(root)}: {get}make it with `smoothcert data make {name}`, "
            f"or put its files into {data_dir(root) / name}."
        )
    side = 28 if DIMENSIONS[name.removesuffix("-c")] == 784 else 32
    return CorruptedSet(name, found, base.classes, base.mean, base.std, (channels, side, side))


def _names_in(folder: Path, channels: int) -> list[str]:
    """Return the corruptions, of the mean or held out, whose files are in a folder."""
    suite = suite_for(channels)
    return [name for name in (*suite.corruptions, *suite.held_out) if _layout(folder, name)]


def _by_path(folder: Path) -> CorruptedSet | None:
    """Take a folder that has the files of a corrupted set; class names are what was noted when it was made."""
    names = [name for channels in (1, 3) for name in _names_in(folder, channels)]
    if not names:
        return None
    layout = _layout(folder, names[0])
    assert layout is not None
    images, labels = layout.read()
    shape = tuple(images.shape[1:])
    found = CorruptedSet(folder.resolve().name, folder, (), (0.0,) * shape[0], (1.0,) * shape[0], shape)
    count = int(labels.max()) + 1 if len(labels) else 0
    classes: Sequence[str] = found.about.get("classes") or [str(label) for label in range(count)]
    return CorruptedSet(found.name, folder, tuple(classes), found.mean, found.std, shape)
