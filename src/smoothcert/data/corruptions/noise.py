"""Corruptions that add noise to each pixel, and helpers for all corruptions.

Every corruption takes an image ([height, width, channels], with values from 0 to 1), a random generator and the
settings of its severity. It returns an image whose values may lie outside [0, 1]; they are clipped when the image is
stored.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

Image = NDArray[np.float64]


def as_floats(values: ArrayLike) -> Image:
    """Convert to a float64 array; used where NumPy's return types are too vague for type checkers."""
    return np.asarray(values, dtype=np.float64)


def per_channel(function: Callable[[Image], ArrayLike], image: Image) -> Image:
    """Apply a function of [height, width] arrays to each channel."""
    return as_floats(np.stack([function(channel) for channel in np.moveaxis(image, 2, 0)], axis=2))


def gaussian_noise(image: Image, random: Generator, scale: float) -> Image:
    """Add Gaussian noise."""
    return image + random.normal(scale=scale, size=image.shape)


def shot_noise(image: Image, random: Generator, photons: float) -> Image:
    """Add Poisson noise, as if white pixels received `photons` photons on average."""
    return random.poisson(image * photons) / photons


def impulse_noise(image: Image, random: Generator, share: float) -> Image:
    """Set a share of the values to black or white with equal probability."""
    chance = random.random(image.shape)
    return np.where(chance < share / 2, 0.0, np.where(chance < share, 1.0, image))


def speckle_noise(image: Image, random: Generator, scale: float) -> Image:
    """Add Gaussian noise proportional to each pixel's value."""
    return image * (1 + random.normal(scale=scale, size=image.shape))
