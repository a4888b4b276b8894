"""Corruptions: affine and elastic transformations."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import ndimage

from smoothcert.data.corruptions.noise import Image, per_channel

Matrix = NDArray[np.float64]


def _warp(image: Image, matrix: Matrix, shift: Matrix, mode: Literal["grid-constant", "mirror"]) -> Image:
    """Return an image whose value at a point (column, row) is interpolated from `image` at matrix @ point + shift."""
    flip = [1, 0]  # arrays are indexed by row first
    matrix, shift = matrix[flip][:, flip], shift[flip]
    return per_channel(lambda channel: ndimage.affine_transform(channel, matrix, shift, order=1, mode=mode), image)


def _about_center(image: Image, matrix: Matrix) -> Image:
    center = (np.array(image.shape[1::-1]) - 1) / 2
    return _warp(image, matrix, center - matrix @ center, mode="grid-constant")


def shear(image: Image, random: Generator, angle: float) -> Image:
    """Shear to the left or right at random, by an angle in radians."""
    angle *= random.choice([-1, 1])
    return _about_center(image, np.array([[1, -math.sin(angle)], [0, math.cos(angle)]]))


def rotate(image: Image, random: Generator, angle: float) -> Image:
    """Rotate in a random direction, by an angle in radians."""
    angle *= random.choice([-1, 1])
    sine, cosine = math.sin(angle), math.cos(angle)
    return _about_center(image, np.array([[cosine, -sine], [sine, cosine]]))


def scale(image: Image, random: Generator, factor: float) -> Image:
    """Shrink the image to `factor` times its size."""
    return _about_center(image, np.eye(2) / factor)


def translate(image: Image, random: Generator, pixels: int) -> Image:
    """Move by `pixels` along both axes, in random directions."""
    return _warp(image, np.eye(2), pixels * random.choice([-1.0, 1.0], size=2), mode="grid-constant")


def elastic_transform(image: Image, random: Generator, strength: float, smoothness: float, tilt: float) -> Image:
    """Apply a random affine map, then a random smooth displacement; all settings are fractions of the image height."""
    side = image.shape[0]
    middle, reach = side // 2, side // 3
    corners = middle + reach * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = corners + random.uniform(-tilt * side, tilt * side, size=(3, 2))
    solved = np.linalg.solve(np.column_stack([moved, np.ones(3)]), corners)  # the inverse map
    image = _warp(image, solved[:2].T, solved[2], mode="mirror")
    shifts = [
        ndimage.gaussian_filter(random.uniform(-1, 1, size=image.shape[:2]), smoothness * side, truncate=3)
        for _ in range(2)
    ]
    places = np.indices(image.shape[:2]) + strength * side * np.stack(shifts)
    return per_channel(lambda channel: ndimage.map_coordinates(channel, places, order=1, mode="reflect"), image)
