"""Recompute classes and radii from the votes beside a results file. Does not import torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.errors import SmoothcertError
from smoothcert.results.look_store import Look, read_looks
from smoothcert.results.naming import counts_path, level_paths, looks_path
from smoothcert.results.recompute import certify_stored
from smoothcert.results.records import Results
from smoothcert.results.stored_protocol import StoredProtocol
from smoothcert.results.vote_table import VoteTable, read_votes
from smoothcert.statistics.bounds import Floats, Ints
from smoothcert.statistics.cascade import CascadeRule
from smoothcert.statistics.certify import bound_uniforms, certify_looks

_AT_ONCE = 1 << 22  # number of vote counts in one array

CHANGED = "the results were changed"


class UnverifiedError(SmoothcertError):
    """Error for rows that do not follow from the votes and settings beside them."""

    def __init__(self, path: Path, problem: str, advice: str = CHANGED) -> None:
        super().__init__(f"{path}: {problem}; {advice}. `unverified=True` reads them anyway.")


def prove_by_counts(
    path: Path, results: Results, protocol: StoredProtocol, table: VoteTable, rows: Ints
) -> tuple[Ints, Floats]:
    """Recompute classes and radii from the votes of a fixed number of noise samples.

    `table` contains all votes beside the results file; row `rows[i]` of this table is for image `results.idx[i]`.
    """
    all_classes = protocol.classes if protocol.bound == "two-sided" else None  # other bounds need only one class
    classes = max(all_classes or 2, table.classes)
    labels = np.zeros(len(table), dtype=np.int64)
    labels[rows] = results.label
    predict, radius = np.empty(len(table), dtype=np.int64), np.empty(len(table))
    for part in _parts(len(table), classes):
        votes, idx = table.dense(part.start, part.stop, classes), table.idx[part]
        _check_totals(counts_path(path), protocol, idx, votes)
        chosen = labels[part] if protocol.top > 1 else votes[0].argmax(axis=1)
        uniforms = bound_uniforms(protocol.seed, idx) if protocol.bound == "randomised" else None
        options: dict[str, Any] = {"bound": protocol.bound, "top": protocol.top, "uniforms": uniforms}
        once = np.ones(len(idx), dtype=np.int64)
        found = certify_looks(chosen, votes[1][:, None], once, protocol.plan, protocol.noise, **options)
        predict[part], radius[part] = found.prediction, found.radius
    return predict[rows], radius[rows]


def _parts(rows: int, classes: int) -> list[slice]:
    step = max(1, _AT_ONCE // classes)
    return [slice(first, min(first + step, rows)) for first in range(0, rows, step)]


def _check_totals(source: Path, protocol: StoredProtocol, idx: Ints, votes: tuple[Ints, Ints]) -> None:
    """Raise unless each image has as many votes in the selection and in the estimation as the sidecar states."""
    for name, number, stage in zip(("n0", "n"), (protocol.n0, protocol.plan.looks[0]), votes, strict=True):
        total = stage.sum(axis=1)
        for row in np.flatnonzero(total != number)[:1]:
            there = f"image {idx[row]} has {total[row]:,} votes"
            raise UnverifiedError(source, f"{there}, but {name} in the sidecar is {number:,}")


def prove_by_levels(path: Path, results: Results, protocol: StoredProtocol, rule: CascadeRule) -> tuple[Ints, Floats]:
    """Recompute classes and radii from the votes of a cascade's levels."""
    files = level_paths(path, len(rule.sigmas))
    tables = [read_votes(file) for file in files]
    for file, table in zip(files, tables, strict=True):
        if not np.array_equal(table.idx, results.idx):
            raise UnverifiedError(file, f"it is for other images than {path.name}")
    predict, radius = np.empty(len(results), dtype=np.int64), np.empty(len(results))
    for part in _parts(len(results), max(table.classes for table in tables)):
        votes = [table.dense(part.start, part.stop, table.classes) for table in tables]
        for file, level in zip(files, votes, strict=True):
            _check_totals(file, protocol, results.idx[part], level)
        predict[part], radius[part], _ = rule.certify(votes)
    return predict, radius


def prove_by_looks(
    path: Path, results: Results, protocol: StoredProtocol, table: VoteTable, rows: Ints
) -> tuple[Ints, Floats]:
    """Recompute classes and radii from the votes of all looks, up to the look whose votes are in the counts file.

    `table` contains the votes of the counts file; row `rows[i]` of this table is for image `results.idx[i]`. During a
    run, the looks file may be ahead of the results file.
    """
    without_row = np.setdiff1d(table.idx, results.idx)
    if len(without_row):
        raise UnverifiedError(path, f"it has no row for image {without_row[0]}, although votes for it are stored")
    classes = max(protocol.classes or 2, table.classes)
    looks, numbers = read_looks(path, classes), {0: 0} | {n: look for look, n in enumerate(protocol.plan.looks, 1)}
    seen, nothing = list[list[Look]](), np.zeros(classes, dtype=np.int64)
    for image, row in zip(results.idx.tolist(), rows.tolist(), strict=True):
        counts = [stage[0] for stage in table.dense(row, row + 1, classes)]
        seen.append(looks.get(image, [])[: numbers.get(int(counts[1].sum()), -1) + 1])
        first, *later = [look.votes for look in seen[-1]] or [nothing]
        if not np.array_equal([first, [nothing, *later][-1]], counts) or first.sum() not in (0, protocol.n0):
            files = f"{counts_path(path).name} and {looks_path(path).name}"
            raise UnverifiedError(path, f"the votes of image {image} differ between {files}, or do not add up to n0")
    options: dict[str, Any] = {"bound": protocol.bound, "top": protocol.top, "seed": protocol.seed}
    labels = results.label.tolist()
    records = certify_stored(results.idx.tolist(), labels, seen, protocol.plan, protocol.noise, **options)
    return np.array([record.predict for record in records]), np.array([record.radius for record in records])
