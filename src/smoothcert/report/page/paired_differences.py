"""Paired differences in ACR between all runs of a dataset, on the images they share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from smoothcert.report.tables.entries import Entry
from smoothcert.statistics.metrics import robust_radius

Pair = tuple[int, int, float, float, int]
"""Positions of two runs, difference in ACR (first minus second), its standard error, and number of shared images."""


def compare_pairs(entries: Sequence[Entry]) -> list[Pair]:
    """Compare all pairs of one dataset and protocol that share at least two images."""
    columns = []
    for entry in entries:
        order = np.argsort(entry.results.idx, kind="stable")
        radius = robust_radius(entry.results.radius, entry.results.correct)
        columns.append((entry.results.idx[order], radius[order]))
    pairs = []
    for first, second in combinations(range(len(entries)), 2):
        one, two = entries[first], entries[second]
        if (one.dataset, one.protocol) != (two.dataset, two.protocol):
            continue
        (idx1, radius1), (idx2, radius2) = columns[first], columns[second]
        if not np.array_equal(idx1, idx2):
            _, at1, at2 = np.intersect1d(idx1, idx2, assume_unique=True, return_indices=True)
            radius1, radius2 = radius1[at1], radius2[at2]
        if len(radius1) > 1:
            gap = radius1 - radius2
            error = float(gap.std(ddof=1) / math.sqrt(len(gap)))
            pairs.append((first, second, float(gap.mean()), error, len(gap)))
    return pairs
