"""Unique row titles for runs that share a name, dataset and noise level: by seed, run name or folder."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smoothcert.report.sources import Run


def make_titles_unique(runs: Sequence[Run]) -> list[Run]:
    """Return the runs with a seed or qualifier added to entries that would have the same title."""
    same_title: dict[Any, list[int]] = {}
    for position, run in enumerate(runs):
        same_title.setdefault((run.entry.name, run.entry.group), []).append(position)
    renamed = list(runs)
    for positions in same_title.values():
        members = [runs[position] for position in positions]
        if len(members) > 1:
            for position, run, change in zip(positions, members, _distinctions(members), strict=True):
                renamed[position] = replace(run, entry=replace(run.entry, **change))
    return renamed


def _distinctions(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the `seed` or the shortest `qualifier` of each run that differs between all of them."""
    seeds = [run.config.seed for run in runs if run.config]
    others = [replace(run.config, seed=0, name="any") for run in runs if run.config]
    if len(set(seeds)) == len(runs) and all(other == others[0] for other in others):
        return [{"seed": seed} for seed in seeds]
    for words in (
        [run.name for run in runs],
        [run.path.absolute().parent.parent.name for run in runs],
        [run.path.name for run in runs],
    ):
        if len(set(words)) == len(words):
            return [{"qualifier": word} for word in words]
    above = os.path.commonpath([run.path.absolute().parent for run in runs])
    return [{"qualifier": str(run.path.absolute().relative_to(above))} for run in runs]
