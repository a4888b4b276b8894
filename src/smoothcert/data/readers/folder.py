"""Reader for image folders in the ImageNet layout, one folder per class; images are decoded on demand by Pillow."""

from __future__ import annotations

import hashlib
import os
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from smoothcert.data.crops import DRAWS, random_box
from smoothcert.errors import Notice, SmoothcertError, UsageError, first_line
from smoothcert.philox import Purpose, uniform
from smoothcert.statistics.bounds import check_count

if TYPE_CHECKING:
    from PIL.Image import Image

_SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"))
_MOST_PIXELS = 100_000_000  # the largest image of ImageNet has 61 million
_MAX_THREADS = 8  # Pillow releases the GIL while it decodes
_BILINEAR = 2  # PIL.Image.Resampling.BILINEAR, as a number because Pillow is optional


class FolderImages:
    """Images of a folder as uint8 [count, 3, height, width].

    Each image's shorter side is resized to `resize`, then the center is cropped to `crop`; None omits the step.
    Images are sorted by their `labels`. Without `crop`, all must have the same size. A file that cannot be decoded
    raises an error. With `skip_broken`, it is replaced with the next decodable image of its class (the first image
    follows the last), and a warning names the file.
    """

    def __init__(
        self, paths: list[Path], labels: list[int], resize: int | None, crop: int | None, *, skip_broken: bool = False
    ) -> None:
        _check_sizes(resize, crop)
        self.paths, self.labels, self.resize, self.crop, self.skip_broken = paths, labels, resize, crop, skip_broken
        height, width = (crop, crop) if crop else _open(paths[0]).size[::-1]
        self.shape = torch.Size((len(paths), 3, height, width))
        self._warned_about: set[int] = set()

    def __getitem__(self, indices: Tensor) -> Tensor:
        return _decode_in_threads(self._central_crop, indices.flatten().tolist())

    def views(self, indices: Sequence[int], draws: Tensor) -> tuple[Tensor, list[int]]:
        """Return a random crop of each image, possibly mirrored, and the index of the image that each crop shows.

        An index differs from the requested one if a broken image was replaced. Crops are taken from the images before
        resizing. `draws` are uniform random numbers of shape [images, DRAWS].
        """
        pairs = [self.view(index, row) for index, row in zip(indices, draws.tolist(), strict=True)]
        return torch.stack([pixels for pixels, _ in pairs]), [used for _, used in pairs]

    def view(self, index: int, draws: Sequence[float]) -> tuple[Tensor, int]:
        """Return a random crop of one image, as `views` does."""
        used, image = self._decodable(index)
        left, top, width, height = random_box(*image.size, draws)
        crop = image.crop((left, top, left + width, top + height))
        pixels = _pixels(crop.resize((self.shape[3], self.shape[2]), _BILINEAR))
        return pixels.flip(2) if draws[-1] < 0.5 else pixels, used

    def _central_crop(self, index: int) -> Tensor:
        index, image = self._decodable(index)
        short = min(image.size)
        if self.resize is not None and short != self.resize:
            width, height = (self.resize * side // short for side in image.size)
            image = image.resize((width, height), _BILINEAR)
        if self.crop:
            if min(image.size) < self.crop:
                size = "x".join(map(str, image.size))
                raise SmoothcertError(
                    f"{self.paths[index]} is {size}, smaller than the `crop` of {self.crop} pixels; set `resize`."
                )
            left, top = (round((side - self.crop) / 2) for side in image.size)
            image = image.crop((left, top, left + self.crop, top + self.crop))
        pixels = _pixels(image)
        if pixels.shape != self.shape[1:]:
            raise SmoothcertError(
                f"{self.paths[index]} is {image.size[0]}x{image.size[1]}, but the first image is "
                f"{self.shape[3]}x{self.shape[2]}; images of several sizes need `resize` and `crop`."
            )
        return pixels

    def _decodable(self, index: int) -> tuple[int, Image]:
        """Return an image and its index; `skip_broken` replaces a broken image with the next good one of its class."""
        label = self.labels[index]
        first, stop = bisect_left(self.labels, label), bisect_right(self.labels, label)
        for number in (*range(index, stop), *range(first, index)):
            try:
                return number, _open(self.paths[number])
            except SmoothcertError as error:
                if not self.skip_broken:
                    raise
                if number not in self._warned_about:
                    self._warned_about.add(number)
                    warnings.warn(f"{error} It is skipped.", Notice, stacklevel=2)
        raise SmoothcertError(f"None of the {stop - first} images of the class of {self.paths[index]} can be decoded.")

    def fingerprint(self) -> bytes:
        """Hash `resize`, `crop`, and the names and sizes of the files."""
        digest = hashlib.sha256(f"{self.resize} {self.crop}".encode())
        for path in self.paths:
            digest.update(f"{path.parent.name}/{path.name} {path.stat().st_size}\n".encode())
        return digest.digest()


def _check_sizes(resize: int | None, crop: int | None) -> None:
    """Raise if `resize` and `crop` cannot yield equally sized images."""
    for name, pixels in (("resize", resize), ("crop", crop)):
        if pixels is not None:
            check_count(name, pixels)
    if resize is not None and crop is None:
        raise UsageError("Expected `crop` together with `resize`; `resize` alone yields images of different shapes.")
    if resize is not None and crop is not None and resize < crop:
        raise UsageError(f"Expected `resize` to be at least `crop`, but got {resize} and {crop}.")


class FolderViews:
    """Images of a folder, each as a random crop that depends on (seed, step, index) only."""

    def __init__(self, images: FolderImages, seed: int, step: int) -> None:
        self.images, self.seed, self.step, self.shape = images, seed, step, images.shape

    def __getitem__(self, indices: Tensor) -> Tensor:
        numbers = indices.flatten()
        draws = view_draws(self.seed, self.step, numbers).tolist()
        return _decode_in_threads(lambda *address: self.images.view(*address)[0], numbers.tolist(), draws)

    def fingerprint(self) -> bytes:
        """Return the fingerprint of the files, with the seed and step appended."""
        return self.images.fingerprint() + f" {self.seed} {self.step}".encode()


def _decode_in_threads(decode: Callable[..., Tensor], *arguments: Iterable[Any]) -> Tensor:
    with ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1)) as pool:
        return torch.stack(list(pool.map(decode, *arguments)))


def view_draws(seed: int, step: int, positions: Tensor) -> Tensor:
    """Return uniform random numbers for the crops of a training step: one row per image index in `positions`."""
    return uniform(seed, (positions, step, Purpose.AUGMENTATION), DRAWS)


def read_folder(
    folder: Path, resize: int | None, crop: int | None, *, skip_broken: bool = False
) -> tuple[FolderImages, Tensor, tuple[str, ...]]:
    """Return images, labels and class names of a folder with one subfolder per class; files are sorted by path."""
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    if not classes:
        raise SmoothcertError(f"{folder} has no subfolders; expected one folder of images per class.")
    paths, labels = [], list[int]()
    for label, name in enumerate(classes):
        files = sorted(path for path in (folder / name).rglob("*") if path.suffix.lower() in _SUFFIXES)
        if not files:
            raise SmoothcertError(f"{folder / name} contains no images; remove it, or add images of this class.")
        paths += files
        labels += [label] * len(files)
    images = FolderImages(paths, labels, resize, crop, skip_broken=skip_broken)
    return images, torch.tensor(labels), tuple(classes)


def _open(path: Path) -> Image:
    """Decode a file as RGB, whatever its color mode."""
    try:
        from PIL import Image
    except ImportError:
        raise SmoothcertError("Image folders need Pillow: pip install 'smoothcert[images]'.") from None
    try:
        if not path.is_file():
            raise ValueError("it is not a regular file")  # opening a pipe might never end
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about damaged EXIF data, which is not used
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # checked below
            with Image.open(path) as file:
                if file.width * file.height > _MOST_PIXELS:
                    size = f"{file.width}x{file.height} pixels"
                    raise ValueError(f"it has {size}; the limit is {_MOST_PIXELS:,} in total")
                return file.convert("RGB")
    except Exception as error:  # a damaged image can raise anything
        reason = first_line(error).replace(str(path), "it")[:200] or type(error).__name__
        raise SmoothcertError(f"{path} cannot be decoded as an image ({reason}).") from error


def _pixels(image: Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)
