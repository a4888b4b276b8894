"""Noise on single pixels.

Every corruption takes an image, floats in [0, 1] of shape [height, width, channels], a random generator and the
settings of its severity, and returns an image whose values may leave [0, 1]; they are clipped when it is stored.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

Image = NDArray[np.float64]


def as_floats(values: ArrayLike) -> Image:
    """Say what NumPy's arithmetic does not: that these are floats."""
    return np.asarray(values, dtype=np.float64)


def gaussian_noise(image: Image, random: Generator, scale: float) -> Image:
    """Add normal noise."""
    return image + random.normal(scale=scale, size=image.shape)


def shot_noise(image: Image, random: Generator, photons: float) -> Image:
    """Count photons, `photons` of them on average where the image is white."""
    return random.poisson(image * photons) / photons


def impulse_noise(image: Image, random: Generator, share: float) -> Image:
    """Turn a share of the values black or white, with equal chance."""
    chance = random.random(image.shape)
    return np.where(chance < share / 2, 0.0, np.where(chance < share, 1.0, image))


def speckle_noise(image: Image, random: Generator, scale: float) -> Image:
    """Add normal noise in proportion to the value."""
    return image * (1 + random.normal(scale=scale, size=image.shape))
