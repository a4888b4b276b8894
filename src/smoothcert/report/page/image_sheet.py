"""Pixels of the gallery's images, joined into one PNG per dataset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import SmoothcertError
from smoothcert.report.page.png import encode_png
from smoothcert.results.records import Results

_LARGEST_SIDE = 64


@dataclass(frozen=True)
class Pictures:
    """Images of a dataset.

    `pixels` maps image indices to uint8 [images, height, width, channels]; `sha256` is the dataset's fingerprint.
    """

    pixels: Callable[[NDArray[np.int64]], NDArray[np.uint8]]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    sha256: str


def check_same_dataset(results: Results, pictures: Pictures) -> None:
    """Raise if the results were not obtained on these images."""
    sha256 = results.about.get("settings", {}).get("data", {}).get("sha256", "")
    known = results.idx.max() < len(pictures.labels)
    if sha256 not in ("", pictures.sha256) or not known or (pictures.labels[results.idx] != results.label).any():
        raise SmoothcertError(f"{results.name} was not certified on the images in the data folder")


def make_sheet(indices: ArrayLike, pictures: Pictures) -> tuple[bytes, list[int], int]:
    """Return a PNG with the images in one column, the [width, height] of each image, and the reduction factor.

    Images are reduced to at most 64 pixels per side.
    """
    pixels = pictures.pixels(np.asarray(indices, dtype=np.int64))
    shrink = -(-max(pixels.shape[1:3]) // _LARGEST_SIDE)
    small = shrink_images(pixels, shrink)
    count, height, width, channels = small.shape
    return encode_png(small.reshape(count * height, width, channels)), [width, height], shrink


def shrink_images(pixels: NDArray[np.uint8], factor: int) -> NDArray[np.uint8]:
    """Average squares of factor x factor pixels; incomplete squares at the edges are cut off."""
    count, height, width, channels = pixels.shape
    rows, columns = height // factor, width // factor
    cut = pixels[:, : rows * factor, : columns * factor].astype(np.float64)
    squares = cut.reshape(count, rows, factor, columns, factor, channels).mean(axis=(2, 4))
    return np.asarray(squares.round(), dtype=np.uint8)


def room_for(pictures: Pictures, sample: NDArray[np.int64], budget: int) -> int:
    """Return the number of images that fit into `budget` bytes, estimated from a sample."""
    png, _, _ = make_sheet(sample, pictures)
    return max(1, budget * len(sample) // len(png))
