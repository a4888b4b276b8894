"""Pixels of the gallery's images, joined into one PNG per dataset, without an imaging library."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import SmoothcertError
from smoothcert.results.records import Results

_LARGEST_SIDE = 64


@dataclass(frozen=True)
class Pictures:
    """Images of a dataset."""

    pixels: Callable[[NDArray[np.int64]], NDArray[np.uint8]]  # from indices to [images, height, width, channels]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    sha256: str  # fingerprint of the dataset


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


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """Return an image [height, width, channels] with one (gray) or three (RGB) channels as a PNG file."""
    height, width, channels = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2}[channels], 0, 0, 0)
    body = zlib.compress(_filtered(pixels).tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _filtered(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Filter each row with the PNG filter that gives the smallest sum of absolute differences."""
    here = pixels.astype(np.int16)
    padded = np.pad(here, ((1, 0), (1, 0), (0, 0)))
    left, above, corner = padded[1:, :-1], padded[:-1, 1:], padded[:-1, :-1]
    guesses = np.stack([np.zeros_like(here), left, above, (left + above) // 2, _paeth(left, above, corner)])
    rows = (here - guesses).astype(np.uint8).reshape(len(guesses), len(pixels), -1)
    rule = np.abs(rows.view(np.int8).astype(np.int32)).sum(axis=2).argmin(axis=0)
    return np.concatenate([rule[:, None].astype(np.uint8), rows[rule, np.arange(len(pixels))]], axis=1)


def _paeth(left: NDArray[np.int16], above: NDArray[np.int16], corner: NDArray[np.int16]) -> NDArray[np.int16]:
    neighbors = np.stack([left, above, corner])
    nearest = np.abs(left + above - corner - neighbors).argmin(axis=0)
    guess: NDArray[np.int16] = np.take_along_axis(neighbors, nearest[None], axis=0)[0]
    return guess


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
