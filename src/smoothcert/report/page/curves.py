"""Certified accuracy as the page keeps it: how many images have their radius in each step of one common grid.

The grid divides the paper's steps of 0.25, so that its radii are on it; on the grid every curve, band, envelope and
paired difference that the page computes is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.report.tables.table import Entry
from smoothcert.results.records import Results

_DIVISIONS = (64, 50, 40, 32, 25, 20, 16, 10, 8, 5, 4, 2, 1)
_STEPS = 250  # an image's step must fit into a byte


@dataclass(frozen=True)
class Grid:
    """The radii 0, step, 2 step, ..., up to the first one that no image reaches."""

    step: float
    count: int

    @property
    def radii(self) -> NDArray[np.float64]:
        """The radii themselves."""
        return self.step * np.arange(self.count).astype(np.float64)

    def place(self, radius: ArrayLike) -> NDArray[np.int64]:
        """Return the last step that each radius reaches."""
        return np.searchsorted(self.radii, np.asarray(radius, dtype=np.float64), side="right") - 1


def choose_grid(largest: float) -> Grid:
    """Return the finest grid that covers radii up to the largest in at most 250 steps.

    >>> choose_grid(0.95), choose_grid(3.81).step
    (Grid(step=0.00390625, count=245), 0.015625)
    """
    largest = max(largest, 0.25)
    for division in _DIVISIONS:
        if largest * 4 * division < _STEPS - 1:
            return Grid(0.25 / division, math.floor(largest * 4 * division) + 2)
    step = 0.25 * math.ceil(largest * 4 / (_STEPS - 2))
    return Grid(step, math.floor(largest / step) + 2)


def grid_for(entries: Sequence[Entry]) -> Grid:
    """Return the common grid of several results."""
    return choose_grid(max(float(entry.results.radius.max()) for entry in entries))


def bins(results: Results, grid: Grid, chosen: NDArray[np.bool_]) -> list[int]:
    """Return how many of the chosen images have their radius in each step of the grid."""
    return [int(count) for count in np.bincount(grid.place(results.radius[chosen]), minlength=grid.count)]


def codes(results: Results, grid: Grid) -> NDArray[np.uint8]:
    """Return a byte an image, by its index: 0 where it is wrong or abstains, else one more than its step."""
    order = np.argsort(results.idx, kind="stable")
    return np.where(results.correct, grid.place(results.radius) + 1, 0)[order].astype(np.uint8)


def vote_bins(share: NDArray[np.float64]) -> list[int]:
    """Return how many vote shares lie in each fiftieth of [0, 1]."""
    return [int(number) for number in np.histogram(share, bins=50, range=(0.0, 1.0))[0]]
