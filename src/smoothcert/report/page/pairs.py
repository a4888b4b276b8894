"""Every two runs of a data set compared on the images they share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from smoothcert.report.tables.table import Entry
from smoothcert.statistics.metrics import robust_radius

Pair = tuple[int, int, float, float, int]
"""Two positions, the first's ACR minus the second's, its standard error, and the number of shared images."""


def compare_pairs(entries: Sequence[Entry]) -> list[Pair]:
    """Compare all pairs of one data set and protocol; those without two common images are left out.

    Runs on the same images, the usual case, are compared at once through their covariance.
    """
    tables: dict[tuple[tuple[str | None, str], bytes], list[int]] = {}
    ordered = [_by_index(entry) for entry in entries]
    for position, (entry, (idx, _)) in enumerate(zip(entries, ordered, strict=True)):
        tables.setdefault(((entry.dataset, entry.protocol), idx.tobytes()), []).append(position)
    found: list[Pair] = []
    for members in tables.values():
        found += _same_images(members, np.stack([ordered[member][1] for member in members]))
    for ((kind, _), some), ((other, _), others) in combinations(tables.items(), 2):
        if kind == other:
            for first in some:
                for second in others:
                    found += _shared_images(first, second, *ordered[first], *ordered[second])
    return sorted(found)


def _by_index(entry: Entry) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    results = entry.results
    order = np.argsort(results.idx, kind="stable")
    return results.idx[order], robust_radius(results.radius, results.correct)[order]


def _same_images(members: Sequence[int], values: NDArray[np.float64]) -> list[Pair]:
    images = values.shape[1]
    if images < 2:
        return []
    means, spread = values.mean(axis=1), np.atleast_2d(np.cov(values))
    found = []
    for one, two in combinations(range(len(members)), 2):
        variance = max(0.0, float(spread[one, one] + spread[two, two] - 2 * spread[one, two]))
        error = math.sqrt(variance / images)
        found.append((members[one], members[two], float(means[one] - means[two]), error, images))
    return found


def _shared_images(
    first: int,
    second: int,
    idx1: NDArray[np.int64],
    values1: NDArray[np.float64],
    idx2: NDArray[np.int64],
    values2: NDArray[np.float64],
) -> list[Pair]:
    _, at1, at2 = np.intersect1d(idx1, idx2, return_indices=True)
    if len(at1) < 2:
        return []
    gap = values1[at1] - values2[at2]
    pair = (first, second, float(gap.mean()), float(gap.std(ddof=1) / math.sqrt(len(gap))), len(gap))
    return [pair if first < second else (second, first, -pair[2], pair[3], pair[4])]
