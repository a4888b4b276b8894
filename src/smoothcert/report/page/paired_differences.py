"""Paired differences in ACR between all pairs of runs on a dataset, on the images that both runs share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from smoothcert.report.tables.entries import Entry
from smoothcert.report.tables.paired import paired_gap
from smoothcert.statistics.metrics import Estimate

Pair = tuple[int, int, Estimate]
"""Positions of two runs, and their difference in ACR (first minus second)."""


def compare_pairs(entries: Sequence[Entry]) -> list[Pair]:
    """Compare all pairs of runs with the same dataset and protocol that share at least two images."""
    places = [
        (first, second)
        for first, second in combinations(range(len(entries)), 2)
        if (entries[first].dataset, entries[first].protocol) == (entries[second].dataset, entries[second].protocol)
    ]
    gaps = ((first, second, paired_gap(entries[first], entries[second])) for first, second in places)
    return [(first, second, gap) for first, second, gap in gaps if gap]
