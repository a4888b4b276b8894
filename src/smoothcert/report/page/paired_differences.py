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
    radii = [robust_radius(entry.results.radius, entry.results.correct) for entry in entries]
    pairs = []
    for first, second in combinations(range(len(entries)), 2):
        one, two = entries[first], entries[second]
        if (one.dataset, one.protocol) != (two.dataset, two.protocol):
            continue
        _, here, there = np.intersect1d(one.results.idx, two.results.idx, assume_unique=True, return_indices=True)
        if len(here) > 1:
            gap = radii[first][here] - radii[second][there]
            error = float(gap.std(ddof=1) / math.sqrt(len(gap)))
            pairs.append((first, second, float(gap.mean()), error, len(gap)))
    return pairs
