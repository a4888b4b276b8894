"""Paired differences of two runs, in ACR and in clean accuracy, as stated on the report page."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from smoothcert.report.tables.entries import Entry
from smoothcert.statistics.metrics import Estimate, robust_radius

_Z = 1.959963984540054  # two-sided 95 %


def paired_gap(first: Entry, second: Entry) -> Estimate | None:
    """Return the ACR of `first` minus the ACR of `second` on shared images; None if there are fewer than two."""
    one, two = first.results, second.results
    _, here, there = np.intersect1d(one.idx, two.idx, assume_unique=True, return_indices=True)
    if len(here) < 2:
        return None
    return normal_estimate(robust_radius(one.radius, one.correct)[here] - robust_radius(two.radius, two.correct)[there])


def paired_accuracy_gap(first: Entry, second: Entry) -> Estimate | None:
    """Return the clean accuracy of `first` minus that of `second` on shared images; None if they share fewer than two.

    Both accuracies are shares between 0 and 1.
    """
    one, two = first.results, second.results
    _, here, there = np.intersect1d(one.idx, two.idx, assume_unique=True, return_indices=True)
    if len(here) < 2:
        return None
    return normal_estimate(one.correct[here].astype(np.float64) - two.correct[there])


def normal_estimate(values: NDArray[np.float64]) -> Estimate:
    """Return the mean of values with its normal 95 % interval; the report page's scripts use the same formula.

    >>> normal_estimate(np.array([0.0, 1.0, 2.0])).standard_error
    0.5773502691896258
    """
    mean, error = float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))
    return Estimate(mean, error, mean - _Z * error, mean + _Z * error)
