"""Paired differences in ACR between all runs of a dataset, on the images they share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from smoothcert.report.tables.entries import Entry
from smoothcert.statistics.metrics import robust_radius

_Values = tuple[NDArray[np.int64], NDArray[np.float64]]
Pair = tuple[int, int, float, float, int]
"""Positions of two runs, difference in ACR (first minus second), its standard error, and number of shared images."""


def compare_pairs(entries: Sequence[Entry]) -> list[Pair]:
    """Compare all pairs of one dataset and protocol that share at least two images.

    Runs on the same images, the usual case, are compared all at once through their covariance.
    """
    groups: dict[tuple[tuple[str | None, str], bytes], list[int]] = {}
    ordered = [_by_index(entry) for entry in entries]
    for position, (entry, (idx, _)) in enumerate(zip(entries, ordered, strict=True)):
        groups.setdefault(((entry.dataset, entry.protocol), idx.tobytes()), []).append(position)
    pairs: list[Pair] = []
    for members in groups.values():
        pairs += _on_same_images(members, np.stack([ordered[member][1] for member in members]))
    for ((kind, _), some), ((other_kind, _), others) in combinations(groups.items(), 2):
        if kind == other_kind:
            for first, second in ((min(pair), max(pair)) for pair in product(some, others)):
                pairs += _on_shared_images(first, second, ordered)
    return sorted(pairs)


def _by_index(entry: Entry) -> _Values:
    """Return image indices, sorted, and robust radii."""
    results = entry.results
    order = np.argsort(results.idx, kind="stable")
    return results.idx[order], robust_radius(results.radius, results.correct)[order]


def _on_same_images(members: Sequence[int], values: NDArray[np.float64]) -> list[Pair]:
    images = values.shape[1]
    if images < 2:
        return []
    means, covariance = values.mean(axis=1), np.atleast_2d(np.cov(values))
    pairs = []
    for one, two in combinations(range(len(members)), 2):
        variance = max(0.0, float(covariance[one, one] + covariance[two, two] - 2 * covariance[one, two]))
        error = math.sqrt(variance / images)
        pairs.append((members[one], members[two], float(means[one] - means[two]), error, images))
    return pairs


def _on_shared_images(first: int, second: int, ordered: Sequence[_Values]) -> list[Pair]:
    (idx1, values1), (idx2, values2) = ordered[first], ordered[second]
    _, at1, at2 = np.intersect1d(idx1, idx2, return_indices=True)
    if len(at1) < 2:
        return []
    gap = values1[at1] - values2[at2]
    return [(first, second, float(gap.mean()), float(gap.std(ddof=1) / math.sqrt(len(gap))), len(gap))]
