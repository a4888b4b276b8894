"""Paired differences of two runs, in ACR and in clean accuracy, on the images that both runs share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from smoothcert.report.tables.entries import Entry
from smoothcert.results.records import Results
from smoothcert.statistics.metrics import Estimate, robust_radius

_Z = 1.959963984540054  # two-sided 95 %


def compare_pairs(entries: Sequence[Entry]) -> list[tuple[int, int, Estimate]]:
    """Return the positions of all pairs with the same dataset and protocol that can be compared, with their gaps."""
    pairs = [
        (first, second, paired_gap(entries[first], entries[second]))
        for first, second in combinations(range(len(entries)), 2)
        if (entries[first].dataset, entries[first].protocol) == (entries[second].dataset, entries[second].protocol)
    ]
    return [(first, second, gap) for first, second, gap in pairs if gap]


def paired_gap(first: Entry, second: Entry) -> Estimate | None:
    """Return the ACR of `first` minus the ACR of `second` on shared images; None if there are fewer than two."""
    return _gap(first, second, lambda results: robust_radius(results.radius, results.correct))


def paired_accuracy_gap(first: Entry, second: Entry) -> Estimate | None:
    """Return the difference in clean accuracy, as a share, on shared images; None if there are fewer than two."""
    return _gap(first, second, lambda results: results.correct.astype(np.float64))


def _gap(first: Entry, second: Entry, values: Callable[[Results], NDArray[np.float64]]) -> Estimate | None:
    one, two = first.results, second.results
    _, here, there = np.intersect1d(one.idx, two.idx, assume_unique=True, return_indices=True)
    return normal_estimate(values(one)[here] - values(two)[there]) if len(here) > 1 else None


def normal_estimate(values: NDArray[np.float64]) -> Estimate:
    """Return the mean of values with its normal 95 % interval; the report page's scripts use the same formula.

    >>> normal_estimate(np.array([0.0, 1.0, 2.0])).standard_error
    0.5773502691896258
    """
    mean, error = float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))
    return Estimate(mean, error, mean - _Z * error, mean + _Z * error)
