"""PNG encoder for 8-bit images, so that the report needs no imaging library."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """Return an image [height, width, channels] with one (gray) or three (RGB) channels as a PNG file."""
    height, width, channels = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2}[channels], 0, 0, 0)
    body = zlib.compress(_filtered(pixels).tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _filtered(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Filter each row with the PNG filter that gives the smallest sum of absolute differences."""
    here = pixels.astype(np.int16)
    left, above = np.zeros_like(here), np.zeros_like(here)
    left[:, 1:], above[1:] = here[:, :-1], here[:-1]
    corner = np.zeros_like(here)
    corner[1:, 1:] = here[:-1, :-1]
    guesses = np.stack([np.zeros_like(here), left, above, (left + above) // 2, _paeth(left, above, corner)])
    rows = (here - guesses).astype(np.uint8).reshape(len(guesses), len(pixels), -1)
    size = np.abs(rows.view(np.int8).astype(np.int32)).sum(axis=2)
    rule = size.argmin(axis=0)
    return np.concatenate([rule[:, None].astype(np.uint8), rows[rule, np.arange(len(pixels))]], axis=1)


def _paeth(left: NDArray[np.int16], above: NDArray[np.int16], corner: NDArray[np.int16]) -> NDArray[np.int16]:
    guess = left + above - corner
    far = [np.abs(guess - neighbor) for neighbor in (left, above, corner)]
    nearest = np.where(far[1] <= far[2], above, corner)
    return np.where((far[0] <= far[1]) & (far[0] <= far[2]), left, nearest)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
