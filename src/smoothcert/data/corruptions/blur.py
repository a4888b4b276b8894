"""Blur corruptions: Gaussian, defocus, frosted glass, motion and zoom."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.random import Generator
from scipy import ndimage

from smoothcert.data.corruptions.noise import Image, as_floats


def gaussian_blur(image: Image, random: Generator, sigma: float) -> Image:
    """Blur with a Gaussian kernel."""
    return ndimage.gaussian_filter(image, (sigma, sigma, 0), mode="nearest")


def defocus_blur(image: Image, random: Generator, radius: float, softness: float) -> Image:
    """Blur with a disc whose edge is softened by a 3x3 Gaussian."""
    return ndimage.correlate(image, _disc(radius, softness)[..., None], mode="mirror")


@cache
def _disc(radius: float, softness: float) -> Image:
    reach = math.ceil(radius) + 1
    steps = np.arange(-reach, reach + 1)
    disc = (steps[:, None] ** 2 + steps**2 <= radius**2).astype(np.float64)
    edge = np.exp(-(np.arange(-1, 2) ** 2) / (2 * softness**2))
    soft = ndimage.correlate(disc / disc.sum(), np.outer(edge, edge) / edge.sum() ** 2, mode="constant")
    return as_floats(soft)


def glass_blur(image: Image, random: Generator, sigma: float, reach: int, rounds: int, chance: float) -> Image:
    """Blur, swap neighboring pixels with probability `chance`, and blur again.

    Two quirks of the published generators are kept: in color images, a pixel is overwritten by its neighbor instead of
    swapped with it; gray images are blurred vertically only, since the generator mistakes their columns for channels.
    """
    height, width, channels = image.shape
    gray = channels == 1
    spread = (sigma, 0, 0) if gray else (sigma, sigma, 0)
    before = cut_to_bytes(ndimage.gaussian_filter(image, spread, mode="nearest"))
    source = list(range(height * width))  # index of the pixel shown at each position
    places = [(row, column) for row in range(height - reach, reach, -1) for column in range(width - reach, reach, -1)]
    for _ in range(rounds):
        shifts = random.integers(-reach, reach, size=(len(places), 2)).tolist()
        moves = (random.random(len(places)) < chance).tolist()
        for (row, column), (right, down), move in zip(places, shifts, moves, strict=True):
            if move:
                here, there = row * width + column, (row + down) * width + column + right
                source[here], source[there] = source[there], source[here if gray else there]
    shuffled = before.reshape(height * width, channels)[source].reshape(image.shape)
    return ndimage.gaussian_filter(shuffled, spread, mode="nearest")


def motion_blur(image: Image, random: Generator, radius: int, sigma: float) -> Image:
    """Blur along a line at a random angle of up to 45 degrees."""
    return smear(image, radius, sigma, random.uniform(-45, 45))


def smear(image: Image, radius: int, sigma: float, degrees: float) -> Image:
    """Blur in one direction along a line, with half a Gaussian as weights and steps of whole pixels.

    This is ImageMagick's motion blur, which the published generators of MNIST-C and CIFAR-10-C use.
    """
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    angle = math.radians(degrees)
    across = np.ceil(steps * math.cos(angle) - 0.5).astype(int)
    down = np.ceil(steps * math.sin(angle) - 0.5).astype(int)
    height, width = image.shape[:2]
    rows = np.clip(np.arange(height) + down[:, None], 0, height - 1)
    columns = np.clip(np.arange(width) + across[:, None], 0, width - 1)
    seen = image[rows[:, :, None], columns[:, None, :]]  # [steps, height, width, channels]
    return cut_to_bytes(np.tensordot(weights / weights.sum(), seen, axes=1))


def cut_to_bytes(image: Image) -> Image:
    """Round values down to multiples of 1/255, as the published generators do by storing bytes between steps."""
    return as_floats(np.floor(image * 255 + 1e-6) / 255)


def zoom_blur(image: Image, random: Generator, furthest: float, step: float) -> Image:
    """Average the image over magnifications from 1 to `furthest`."""
    down, across = (_zooms(size, furthest, step) for size in image.shape[:2])
    rows = np.tensordot(down, image, axes=1)  # [zooms, height, width, channels]
    zoomed = np.tensordot(rows, across, axes=([0, 2], [0, 2]))  # [height, channels, width]
    return as_floats((image + np.moveaxis(zoomed, 1, 2)) / (len(down) + 1))


@cache
def _zooms(size: int, furthest: float, step: float) -> Image:
    """Return, for each magnification, the matrix [size, size] that zooms a column of pixels."""
    factors = np.arange(1, furthest + step / 2, step)
    return np.stack([zoom(np.eye(size), float(factor), axes=(0,)) for factor in factors])


def zoom(image: Image, factor: float, axes: tuple[int, ...] = (0, 1)) -> Image:
    """Magnify the center of an image until it fills the image, with linear interpolation."""
    for axis in axes:
        size = image.shape[axis]
        part = math.ceil(size / factor)
        center = image.take(range((size - part) // 2, (size - part) // 2 + part), axis=axis)
        large = ndimage.zoom(center, [factor if other == axis else 1 for other in range(image.ndim)], order=1)
        spare = (large.shape[axis] - size) // 2
        image = large.take(range(spare, spare + size), axis=axis)
    return image
