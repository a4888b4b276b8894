"""Bootstrap resamples of images, drawn once and reused by all estimates over the same number of images."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_BLOCK = 64  # resamples converted to floating point at a time, to limit memory


@lru_cache(maxsize=4)
def _resamples(images: int, number: int, seed: int) -> NDArray[np.uint8]:
    generator = np.random.default_rng(seed)
    drawn = np.empty((number, images), dtype=np.uint8)  # the chance of drawing one image 256 times is negligible
    for row in drawn:
        row[:] = np.bincount(generator.integers(0, images, images), minlength=images)
    drawn.flags.writeable = False
    return drawn


def resample_blocks(images: int, number: int, seed: int) -> Iterator[NDArray[np.float64]]:
    """Yield how many times each bootstrap resample contains each image, in blocks [resamples, images]."""
    drawn = _resamples(images, int(number), int(seed))
    for start in range(0, number, _BLOCK):
        yield drawn[start : start + _BLOCK].astype(np.float64)
