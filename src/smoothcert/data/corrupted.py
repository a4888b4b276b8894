"""Find and load datasets of corrupted images, published or made by `smoothcert data make`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from smoothcert.data.corruptions.making import read_about
from smoothcert.data.corruptions.suites import suite_for
from smoothcert.data.files import data_dir, folders
from smoothcert.data.image_data import ImageData
from smoothcert.data.readers.corrupted import find_corruption, read_corruption
from smoothcert.data.registry import DATASETS, load_dataset
from smoothcert.dataset_names import CORRUPTED, DIMENSIONS, canonical_name
from smoothcert.errors import SmoothcertError, unknown_name

_PUBLISHED = {"cifar10-c": "CIFAR-10-C", "cifar100-c": "CIFAR-100-C", "mnist-c": "mnist_c"}


@dataclass(frozen=True)
class CorruptedSet:
    """A folder of corrupted images; it may lack some of the corruptions."""

    name: str
    folder: Path
    shape: tuple[int, ...]
    classes: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @property
    def corruptions(self) -> tuple[str, ...]:
        """Names of the corruptions that are included in the mean over corruptions."""
        return suite_for(self.shape[0]).counted

    @property
    def available(self) -> list[str]:
        """The subset of `corruptions` that is in the folder."""
        return [name for name in self.corruptions if find_corruption(self.folder, name)]

    @property
    def missing(self) -> list[str]:
        """The subset of `corruptions` that is not in the folder."""
        return [name for name in self.corruptions if not find_corruption(self.folder, name)]

    def find_clean(self, root: str | Path | None = None) -> ImageData | None:
        """Return the uncorrupted images, in the order of the corrupted ones, or None if they cannot be found."""
        if find_corruption(self.folder, "identity"):
            return self.load("identity")
        made_from = read_about(self.folder).get("made_from", {})
        try:
            clean = load_dataset(made_from.get("name", self.name.removesuffix("-c")), "test", root)
        except SmoothcertError:
            return None
        if made_from:
            return clean if clean.fingerprint == made_from["sha256"] else None
        images = self.load(self.available[0])
        return clean if len(clean) * images.severities == len(images) else None

    def load(self, corruption: str) -> ImageData:
        """Load the images of one corruption at all severities."""
        suite, file = suite_for(self.shape[0]), find_corruption(self.folder, corruption)
        if file is None:
            if corruption not in (*suite.corruptions, "identity"):
                raise unknown_name("corruption", corruption, suite.corruptions)
            available = ", ".join(self.available) or "none"
            raise SmoothcertError(f"{self.folder} has no images for {corruption}; available: {available}.")
        images, labels = read_corruption(file)
        if tuple(images.shape[1:]) != self.shape:
            raise SmoothcertError(
                f"{file}: expected images of shape {list(self.shape)}, but got {list(images.shape[1:])}."
            )
        severities = 1 if corruption == "identity" else suite.severities
        name = f"{self.name}/{corruption}"
        data = ImageData(name, "test", images, labels, self.classes, self.mean, self.std, severities)
        if not torch.equal(labels, labels[: len(labels) // severities].repeat(severities)):
            raise SmoothcertError(f"{file}: expected the same labels at all {severities} severities, but they differ.")
        return data


def find_corrupted(name: str, root: str | Path | None = None) -> CorruptedSet | None:
    """Find a corrupted dataset by its name or by the path of its folder; return None if `name` is neither."""
    name = canonical_name(name)
    if name not in CORRUPTED:
        folder = Path(name).expanduser()
        return _from_folder(folder) if folder.is_dir() else None
    clean_name = name.removesuffix("-c")
    base = DATASETS[clean_name]
    spellings = (name, _PUBLISHED.get(name, name), name.replace("_", "-"), name.replace("-", "_"))
    channels = len(base.mean)
    candidates = folders(data_dir(root), dict.fromkeys(spellings))
    location = next((folder for folder in candidates if _first_file(folder, channels)), None)
    if location is None:
        get = f"run `smoothcert data get {name}`, or " if name in _PUBLISHED else ""
        raise SmoothcertError(
            f"{name} is not in {data_dir(root)}: {get}make it with `smoothcert data make {name}`, "
            f"or put its files into {data_dir(root) / name}."
        )
    side = 28 if DIMENSIONS[clean_name] == 784 else 32
    return CorruptedSet(name, location, (channels, side, side), base.classes, base.mean, base.std)


def _from_folder(folder: Path) -> CorruptedSet | None:
    """Return the corrupted dataset in a folder, or None. Class names come from `about.json`, if it contains any."""
    file = _first_file(folder, 1, 3)
    if file is None:
        return None
    images, _ = read_corruption(file)
    classes = tuple(read_about(folder).get("classes", ()))
    return CorruptedSet(folder.resolve().name, folder, tuple(images.shape[1:]), classes)


def _first_file(folder: Path, *channels: int) -> Path | None:
    """Return the file of the first corruption in a folder, for images with one of the numbers of channels."""
    names = (name for number in channels for name in suite_for(number).corruptions)
    return next(filter(None, (find_corruption(folder, name) for name in names)), None)
