"""Runs that share a name, a data set and a noise level, told apart by what differs: a seed, a name, a place."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smoothcert.report.sources import Run


def tell_apart(runs: Sequence[Run]) -> list[Run]:
    """Give runs that would have one title a seed or a word of their own, the shortest that is different for all."""
    alike: dict[Any, list[int]] = {}
    for position, run in enumerate(runs):
        alike.setdefault((run.entry.name, run.entry.group), []).append(position)
    told = list(runs)
    for positions in alike.values():
        members = [runs[position] for position in positions]
        if len(members) > 1:
            for position, run, word in zip(positions, members, _words(members), strict=True):
                told[position] = replace(run, entry=replace(run.entry, **word))
    return told


def _words(runs: Sequence[Run]) -> list[dict[str, Any]]:
    seeds = [run.config.seed for run in runs if run.config]
    others = [replace(run.config, seed=0, name="any") for run in runs if run.config]
    if _all_differ(seeds) and len(seeds) == len(runs) and all(other == others[0] for other in others):
        return [{"seed": seed} for seed in seeds]
    for words in (
        [run.name for run in runs],
        [run.path.absolute().parent.parent.name for run in runs],
        [run.path.name for run in runs],
    ):
        if _all_differ(words):
            return [{"apart": word} for word in words]
    above = os.path.commonpath([run.path.absolute().parent for run in runs])
    return [{"apart": str(run.path.absolute().relative_to(above))} for run in runs]


def _all_differ(words: Sequence[Any]) -> bool:
    return len(set(words)) == len(words)
