"""Unique row titles for runs that share a name, dataset and noise level: by seed, run name or folder."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from smoothcert.report.groups import grouped

if TYPE_CHECKING:
    from smoothcert.report.sources import Run


def make_titles_unique(runs: Sequence[Run]) -> list[Run]:
    """Return the runs with a seed or qualifier added to entries that would have the same title."""
    changes: dict[int, dict[str, Any]] = {}
    for members in grouped(runs, lambda run: (run.entry.name, run.entry.group)):
        if len(members) > 1:
            changes |= zip(map(id, members), _distinctions(members), strict=True)
    return [replace(run, entry=replace(run.entry, **changes.get(id(run), {}))) for run in runs]


def _distinctions(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return, for each run, the `seed` or `qualifier` that distinguishes it from the other runs."""
    seeds = [run.config.seed for run in runs if run.config]
    others = [replace(run.config, seed=0, name="any") for run in runs if run.config]
    if len(set(seeds)) == len(runs) and all(other == others[0] for other in others):
        return [{"seed": seed} for seed in seeds]
    for words in (
        _without_common_start([run.name for run in runs]),
        [run.path.absolute().parent.parent.name for run in runs],
        [run.path.name for run in runs],
    ):
        if len(set(words)) == len(words):
            return [{"qualifier": word} for word in words]
    above = os.path.commonpath([run.path.absolute().parent for run in runs])
    return [{"qualifier": str(run.path.absolute().relative_to(above))} for run in runs]


def _without_common_start(names: Sequence[str]) -> list[str]:
    """Remove the leading words that all names share; a name without other words becomes empty.

    >>> _without_common_start(["mnist-macer-1.00", "mnist-macer-1.00-lambda4", "mnist-macer-1.00-lambda8"])
    ['', 'lambda4', 'lambda8']
    """
    words = [name.split("-") for name in names]
    shared = len(list(takewhile(lambda same: len(set(same)) == 1, zip(*words, strict=False))))
    return ["-".join(word[shared:]) for word in words]
