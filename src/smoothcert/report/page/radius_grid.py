"""Count images by radius on a common grid; from these counts, the report page computes certified accuracy.

The step divides 0.25, so that the paper's radii lie on the grid. (If the largest radius exceeds 62, the step is a
multiple of 0.25.) At the grid's radii, all curves, bands, envelopes and paired differences on the page are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.report.tables.entries import Entry
from smoothcert.results.records import Results

_STEPS = [0.25 / parts for parts in (64, 50, 40, 32, 25, 20, 16, 10, 8, 5, 4, 2, 1)]
_MAX_STEPS = 250  # so that the code of an image fits into a byte


@dataclass(frozen=True)
class RadiusGrid:
    """The radii 0, step, 2 step, ..., up to the first radius that no image reaches."""

    step: float
    count: int

    @property
    def radii(self) -> NDArray[np.float64]:
        """All radii of the grid."""
        return self.step * np.arange(self.count).astype(np.float64)

    def steps_of(self, radius: ArrayLike) -> NDArray[np.int64]:
        """Return, for each radius, the index of the largest grid radius that does not exceed it."""
        return np.searchsorted(self.radii, np.asarray(radius, dtype=np.float64), side="right") - 1


def choose_grid(largest: float) -> RadiusGrid:
    """Return the finest supported grid that covers all radii up to `largest` in at most 250 steps.

    >>> choose_grid(0.95), choose_grid(3.81).step
    (RadiusGrid(step=0.00390625, count=245), 0.015625)
    """
    largest = max(largest, 0.25)
    coarse = 0.25 * math.ceil(largest * 4 / (_MAX_STEPS - 2))
    step = next((step for step in _STEPS if largest / step < _MAX_STEPS - 1), coarse)
    return RadiusGrid(step, math.floor(largest / step) + 2)


def grid_for(entries: Sequence[Entry]) -> RadiusGrid:
    """Return a common grid that covers the radii of all entries."""
    return choose_grid(max(float(entry.results.radius.max()) for entry in entries))


def radius_counts(results: Results, grid: RadiusGrid, chosen: NDArray[np.bool_]) -> list[int]:
    """Return, for each step of the grid, the number of chosen images with a radius in this step."""
    counts: list[int] = np.bincount(grid.steps_of(results.radius[chosen]), minlength=grid.count).tolist()
    return counts


def image_codes(results: Results, grid: RadiusGrid) -> NDArray[np.uint8]:
    """Return one byte per image, ordered by index: 0 if wrong or abstained, else one plus the step of its radius."""
    order = np.argsort(results.idx, kind="stable")
    return np.where(results.correct, grid.steps_of(results.radius) + 1, 0)[order].astype(np.uint8)
