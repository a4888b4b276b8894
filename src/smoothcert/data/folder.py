"""Image folders in the ImageNet layout, one folder a class, decoded when asked for (needs Pillow)."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from smoothcert.data.crops import DRAWS, random_box
from smoothcert.errors import Notice, SmoothcertError, UsageError
from smoothcert.philox import Purpose, uniform
from smoothcert.statistics.bounds import check_count

if TYPE_CHECKING:
    from PIL.Image import Image

_SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"))
_MOST_THREADS = 8


class FolderImages:
    """The images of a folder as uint8 [count, 3, size, size]: shorter side resized, then the centre cropped.

    Without `crop` the images are taken as they are and must all have one size. A file that cannot be decoded is an
    error, unless `skip_broken` has the next one that can be take its place; each is then named in a warning.
    """

    def __init__(self, paths: list[Path], resize: int | None, crop: int | None, *, skip_broken: bool = False) -> None:
        _check_cut(resize, crop)
        self.paths, self.resize, self.crop, self.skip_broken = paths, resize, crop, skip_broken
        height, width = (crop, crop) if crop else _open(paths[0]).size[::-1]
        self.shape = torch.Size((len(paths), 3, height, width))
        self._named: set[int] = set()

    def __getitem__(self, indices: Tensor) -> Tensor:
        """Decode the images at these indices, several at a time: Pillow lets threads run beside each other."""
        return self._stack(self._central, indices.flatten().tolist())

    def views(self, indices: Sequence[int], draws: Tensor) -> tuple[Tensor, list[int]]:
        """Return a random part of each image at full size, perhaps mirrored, and the indices that were decoded.

        `draws` are uniform numbers [images, DRAWS]. The parts are cut from the photographs themselves.
        """
        pixels, used = [], []
        for index, row in zip(indices, draws.tolist(), strict=True):
            number, image = self._decodable(index)
            pixels.append(self._part(image, row))
            used.append(number)
        return torch.stack(pixels), used

    def _stack(self, decode: Callable[[int], Tensor], indices: list[int]) -> Tensor:
        threads = min(_MOST_THREADS, os.cpu_count() or 1, len(indices))
        if threads < 2:
            return torch.stack([decode(index) for index in indices])
        with ThreadPoolExecutor(threads) as pool:
            return torch.stack(list(pool.map(decode, indices)))

    def _central(self, index: int) -> Tensor:
        index, image = self._decodable(index)
        if self.resize is not None and min(image.size) != self.resize:
            width, height = image.size
            short = min(width, height)
            image = image.resize((self.resize * width // short, self.resize * height // short), _bilinear())
        if self.crop:
            if min(image.size) < self.crop:
                size = "x".join(map(str, image.size))
                text = f"{self.paths[index]} is {size}, too small for a `crop` of {self.crop}"
                raise SmoothcertError(f"{text}; `resize` it first.")
            left, top = (round((side - self.crop) / 2) for side in image.size)
            image = image.crop((left, top, left + self.crop, top + self.crop))
        pixels = _pixels(image)
        if pixels.shape != self.shape[1:]:
            raise SmoothcertError(
                f"{self.paths[index]} is {image.size[0]}x{image.size[1]}, the first image "
                f"{self.shape[3]}x{self.shape[2]}; images of several sizes need `resize` and `crop`."
            )
        return pixels

    def _part(self, image: Image, draws: Sequence[float]) -> Tensor:
        left, top, width, height = random_box(*image.size, draws)
        part = image.crop((left, top, left + width, top + height))
        pixels = _pixels(part.resize((self.shape[3], self.shape[2]), _bilinear()))
        return pixels.flip(2) if draws[-1] < 0.5 else pixels

    def _decodable(self, index: int) -> tuple[int, Image]:
        """Return an image and its index; where broken files are skipped, of the next one that can be decoded."""
        for number in range(index, index + len(self.paths)):
            found = number % len(self.paths)
            try:
                return found, _open(self.paths[found])
            except SmoothcertError as error:
                if not self.skip_broken:
                    raise
                if found not in self._named:
                    self._named.add(found)
                    warnings.warn(f"{error} It is skipped.", Notice, stacklevel=2)
        raise SmoothcertError(f"None of the {len(self.paths)} images can be decoded.")

    def fingerprint(self) -> bytes:
        """Hash names and sizes of the files, and how they are cut."""
        digest = hashlib.sha256(f"{self.resize} {self.crop}".encode())
        for path in self.paths:
            digest.update(f"{path.parent.name}/{path.name} {path.stat().st_size}\n".encode())
        return digest.digest()


def _check_cut(resize: int | None, crop: int | None) -> None:
    """Refuse sizes of which no image of one size comes."""
    for name, pixels in (("resize", resize), ("crop", crop)):
        if pixels is not None:
            check_count(name, pixels)
    if resize is not None and crop is None:
        raise UsageError("`resize` alone leaves images of several shapes; say with `crop` what is then cut out.")
    if resize is not None and crop is not None and resize < crop:
        raise UsageError(f"Expected `resize` to be at least `crop`, but got {resize} and {crop}.")


class FolderViews:
    """A folder's images, each as the one random view that (seed, step, index) names."""

    def __init__(self, images: FolderImages, seed: int, step: int) -> None:
        self.images, self.seed, self.step, self.shape = images, seed, step, images.shape

    def __getitem__(self, indices: Tensor) -> Tensor:
        """Decode the views at these indices."""
        numbers = indices.flatten()
        draws = dict(zip(numbers.tolist(), view_draws(self.seed, self.step, numbers), strict=True))
        return self.images._stack(
            lambda index: self.images.views([index], draws[index].unsqueeze(0))[0][0], numbers.tolist()
        )

    def fingerprint(self) -> bytes:
        """Identify the files and the views of them."""
        return self.images.fingerprint() + f" {self.seed} {self.step}".encode()


def view_draws(seed: int, step: int, positions: Tensor) -> Tensor:
    """Return the numbers that random views need, for positions in a mini-batch."""
    return uniform(seed, (positions, step, Purpose.AUGMENTATION), DRAWS)


def read_folder(
    folder: Path, resize: int | None, crop: int | None, *, skip_broken: bool = False
) -> tuple[FolderImages, Tensor, tuple[str, ...]]:
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
    return FolderImages(paths, resize, crop, skip_broken=skip_broken), torch.tensor(labels), tuple(classes)


def _open(path: Path) -> Image:
    """Decode a file as RGB, grey-scale and CMYK included."""
    try:
        from PIL import Image
    except ImportError:
        raise SmoothcertError("Image folders need Pillow: pip install 'smoothcert[images]'.") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # on EXIF data nobody reads
            with Image.open(path) as file:
                return file.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise SmoothcertError(f"{path} cannot be decoded as an image ({error}).") from error


def _pixels(image: Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def _bilinear() -> int:
    from PIL import Image

    return Image.Resampling.BILINEAR
