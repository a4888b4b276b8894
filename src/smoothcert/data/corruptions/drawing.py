"""Corruptions: lines, inversion, edge detection, quantization, pixelation and compression."""

from __future__ import annotations

import io
import math
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from smoothcert.data.corruptions.noise import Image, as_floats, per_channel
from smoothcert.errors import SmoothcertError

XY = tuple[float, float]
"""A point as (column, row)."""


def _line(shape: tuple[int, ...], start: XY, end: XY) -> NDArray[np.float64]:
    """Draw a line from left to right that fades out within a vertical distance of 1.45 pixels."""
    height, width = shape[:2]
    slope = (end[1] - start[1]) / (end[0] - start[0])
    across = np.arange(width)
    distance = np.abs(np.arange(height)[:, None] - (start[1] + slope * (across - start[0])))
    ink = np.clip(np.log1p(-np.minimum(distance, 2.29) / 2.3) + 1, 0, 1)
    return np.where((across >= math.floor(start[0])) & (across < math.ceil(end[0])), ink, 0.0)


def line(image: Image, random: Generator) -> Image:
    """Draw a line from near the left edge to near the right edge."""
    height, width = image.shape[:2]
    left, right = int(random.integers(0, 5)), int(random.integers(width - 6, width - 1))
    start, end = random.integers(0, height - 1, size=2).tolist()
    return image + _line(image.shape, (left, start), (right, end))[..., None]


def dotted_line(image: Image, random: Generator) -> Image:
    """Draw a line from edge to edge with dashes and gaps of two pixels."""
    height, width = image.shape[:2]
    start, end = random.integers(0, height - 1, size=2).tolist()
    ink = _line(image.shape, (0, start), (width - 1, end))
    return image + np.where(np.arange(width) // 2 % 2 == 1, ink, 0.0)[..., None]


def zigzag(image: Image, random: Generator) -> Image:
    """Draw a zigzag with teeth of two pixels around a slightly inclined line."""
    height, width = image.shape[:2]
    row, rise, run = int(random.integers(0, height - 1)), int(random.integers(-5, 5)), width - 5
    tooth = 2.0
    lean, length = math.atan2(rise, run), math.hypot(run, rise)
    teeth = int((length - tooth) // (2 * tooth)) + 1
    along = [0.0, *((2 * i + 1) * tooth for i in range(teeth))]
    away = [0.0, *((-1) ** i * tooth for i in range(teeth))]
    rest = length - 2 * tooth * (length // (2 * tooth))
    if rest:
        along.append(length)
        away.append(away[-1] / (2 * rest))  # as published, slightly off the line
    across = 2 + np.array(along) * math.cos(lean) - np.array(away) * math.sin(lean)
    down = row + np.array(along) * math.sin(lean) + np.array(away) * math.cos(lean)
    points = list(zip(across.tolist(), down.tolist(), strict=True))
    return image + as_floats(np.sum([_line(image.shape, *ends) for ends in pairwise(points)], axis=0))[..., None]


def stripe(image: Image, random: Generator) -> Image:
    """Invert the left and the right quarter of the image."""
    quarter = image.shape[1] // 4
    across = np.arange(image.shape[1])[:, None]
    return np.where((across < quarter) | (across >= image.shape[1] - quarter), 1 - image, image)


def inverse(image: Image, random: Generator) -> Image:
    """Invert all values."""
    return 1 - image


def quantize(image: Image, random: Generator, bits: int) -> Image:
    """Reduce each value to `bits` bits."""
    levels = 2**bits - 1
    return as_floats(np.rint(image * levels) / levels)


def canny_edges(image: Image, random: Generator) -> Image:
    """Keep only the edges found by the Canny detector."""
    try:
        from skimage.feature import canny
    except ImportError:
        raise SmoothcertError("canny_edges needs scikit-image: pip install 'smoothcert[corruptions]'.") from None

    return per_channel(canny, image)


def pixelate(image: Image, random: Generator, share: float) -> Image:
    """Shrink the image to a share of its size and enlarge it again, without smoothing."""
    from PIL import Image as Pillow

    height, width = image.shape[:2]
    small = _pillow(image).resize((int(width * share), int(height * share)), Pillow.Resampling.BOX)
    return _floats(small.resize((width, height), Pillow.Resampling.BOX), image)


def jpeg_compression(image: Image, random: Generator, quality: int) -> Image:
    """Compress as JPEG."""
    from PIL import Image as Pillow

    content = io.BytesIO()
    _pillow(image).save(content, "JPEG", quality=quality)
    return _floats(Pillow.open(content), image)


def _pillow(image: Image) -> Any:
    from PIL import Image as Pillow

    return Pillow.fromarray(np.rint(image * 255).astype(np.uint8).squeeze())


def _floats(picture: Any, image: Image) -> Image:
    return as_floats(picture).reshape(image.shape) / 255
