"""Choose the test images in the report page's gallery; a page of many runs stays small, as they share images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from smoothcert.results.records import Results

KINDS = ("most robust", "least robust", "wrong", "abstained")
_MAX_IMAGES = 8  # per kind and run
_EXTREME = 0.02  # share of a run's images that are candidates of each kind, except abstentions

Picks = dict[str, list[int]]
"""Rows of a results file by kind."""


def candidates(results: Results) -> Picks:
    """Return the rows of each kind in `KINDS` that may be shown, most interesting first."""
    ascending = np.argsort(results.radius, kind="stable")
    correct = ascending[(results.correct & (results.predict >= 0))[ascending]]
    wrong = np.flatnonzero(~results.correct & (results.predict >= 0))
    few = max(_MAX_IMAGES, round(_EXTREME * len(results)))
    # Many images share the largest radius that n noise samples allow: all of them are equally interesting.
    ties = int((results.radius[correct] == results.radius[correct].max(initial=0.0)).sum())
    picks = {
        "most robust": correct[::-1][: max(few, ties)],
        "least robust": correct[:few],
        "wrong": wrong[np.argsort(-results.radius[wrong], kind="stable")][:few],
        "abstained": np.flatnonzero(results.predict < 0),
    }
    return {kind: rows.tolist() for kind, rows in picks.items()}


def choose(runs: Sequence[Results], room: int) -> list[Picks]:
    """Return the rows that each run shows: as many per kind, up to 8, as fit into `room` different images."""
    offered = [candidates(results) for results in runs]
    popularity = Counter(_kinds_and_images(runs, offered))
    ranked = [
        {kind: sorted(rows, key=lambda row: -popularity[kind, int(results.idx[row])]) for kind, rows in picks.items()}
        for results, picks in zip(runs, offered, strict=True)
    ]
    chosen: list[Picks] = []
    for most in range(_MAX_IMAGES, 0, -1):
        chosen = [{kind: rows[:most] for kind, rows in picks.items()} for picks in ranked]
        if len(shown_images(runs, chosen)) <= room:
            break
    kept = set(shown_images(runs, chosen)[:room])  # one image per kind and run may already exceed `room`
    for results, picks in zip(runs, chosen, strict=True):
        for kind, rows in picks.items():
            sign = 1 if kind == "least robust" else -1
            shown = [row for row in rows if int(results.idx[row]) in kept]
            picks[kind] = [row for *_, row in sorted((sign * results.radius[r], results.idx[r], r) for r in shown)]
    return chosen


def shown_images(runs: Sequence[Results], chosen: Sequence[Picks]) -> list[int]:
    """Return the indices of all shown images, the most frequently shown first."""
    frequency = Counter(index for _, index in _kinds_and_images(runs, chosen))
    return sorted(frequency, key=lambda index: (-frequency[index], index))


def _kinds_and_images(runs: Sequence[Results], chosen: Sequence[Picks]) -> Iterator[tuple[str, int]]:
    for results, picks in zip(runs, chosen, strict=True):
        for kind, rows in picks.items():
            yield from ((kind, int(results.idx[row])) for row in rows)
