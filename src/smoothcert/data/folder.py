"""Image folders in the ImageNet layout, one folder a class, decoded when asked for (needs Pillow)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from smoothcert.errors import SmoothcertError

if TYPE_CHECKING:
    from PIL.Image import Image

_SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"))


class FolderImages:
    """The images of a folder as uint8 [count, 3, size, size]: shorter side resized, then the centre cropped.

    Without `crop` the images are taken as they are and must all have one size.
    """

    def __init__(self, paths: list[Path], resize: int | None, crop: int | None) -> None:
        self.paths, self.resize, self.crop = paths, resize, crop
        height, width = (crop, crop) if crop else _open(paths[0], None).size[::-1]
        self.shape = torch.Size((len(paths), 3, height, width))

    def __getitem__(self, indices: Tensor) -> Tensor:
        """Decode the images at these indices."""
        return torch.stack([self._decode(self.paths[i]) for i in indices.flatten().tolist()])

    def _decode(self, path: Path) -> Tensor:
        image = _open(path, self.resize)
        if self.crop:
            left, top = (round((side - self.crop) / 2) for side in image.size)
            image = image.crop((left, top, left + self.crop, top + self.crop))
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        if pixels.shape != self.shape[1:]:
            raise SmoothcertError(
                f"{path} is {image.size[0]}x{image.size[1]}, the first image {self.shape[3]}x{self.shape[2]}; "
                "images of several sizes need `resize` and `crop`."
            )
        return pixels

    def fingerprint(self) -> bytes:
        """Hash names and sizes of the files, and how they are cut."""
        digest = hashlib.sha256(f"{self.resize} {self.crop}".encode())
        for path in self.paths:
            digest.update(f"{path.parent.name}/{path.name} {path.stat().st_size}\n".encode())
        return digest.digest()


def read_folder(folder: Path, resize: int | None, crop: int | None) -> tuple[FolderImages, Tensor, tuple[str, ...]]:
    """Return images, labels and class names of a folder that holds one folder a class, in sorted order."""
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    if not classes:
        raise SmoothcertError(f"{folder} holds no class folders; expected one folder of images for each class.")
    paths, labels = [], []
    for label, name in enumerate(classes):
        files = sorted(path for path in (folder / name).rglob("*") if path.suffix.lower() in _SUFFIXES)
        if not files:
            raise SmoothcertError(f"{folder / name} holds no image.")
        paths += files
        labels += [label] * len(files)
    return FolderImages(paths, resize, crop), torch.tensor(labels), tuple(classes)


def _open(path: Path, resize: int | None) -> Image:
    """Open an image as RGB (grey-scale and CMYK included), its shorter side brought to `resize`."""
    try:
        from PIL import Image
    except ImportError:
        raise SmoothcertError("Image folders need Pillow: pip install 'smoothcert[images]'.") from None
    try:
        with Image.open(path) as file:
            image = file.convert("RGB")
    except OSError as error:
        raise SmoothcertError(f"{path} cannot be decoded as an image ({error}).") from error
    if resize is None or min(image.size) == resize:
        return image
    width, height = image.size
    short = min(width, height)
    return image.resize((resize * width // short, resize * height // short), Image.Resampling.BILINEAR)
