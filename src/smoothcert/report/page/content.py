"""Everything the page shows, as plain values: made here once, drawn by the page's scripts."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.dataset_names import TITLES
from smoothcert.report.page import curves
from smoothcert.report.page.background import cost, training
from smoothcert.report.page.heatmap import Corruptions, heat_map
from smoothcert.report.page.pairs import compare_pairs
from smoothcert.report.page.pictures import Load, gallery
from smoothcert.report.page.votes import Votes, read_estimation, vote_shares
from smoothcert.report.sources import Run
from smoothcert.report.tables.paper_numbers import METHODS, paper_row
from smoothcert.report.tables.table import Row, Table

Json = dict[str, Any]


def build_content(
    runs: Sequence[Run],
    table: Table,
    *,
    load: Load | None = None,
    corruptions: Mapping[str, Corruptions] | None = None,
) -> Json:
    """Return what the page's scripts draw; the runs are in the order of the table's rows."""
    entries = [run.entry for run in runs]
    grid = curves.grid_for(entries)
    votes = [read_estimation(run.path, len(run.entry.results)) for run in runs]
    points = 100 if len(runs) <= 40 else 40
    described = [
        _describe(run, row, grid, run_votes) | {"setting": setting, "training": training(run, points)}
        for run, row, run_votes, setting in zip(runs, table.rows, votes, settings(runs), strict=True)
    ]
    rivals = list(dict.fromkeys(entry.rivals for entry in entries))
    for described_run, entry in zip(described, entries, strict=True):
        described_run["rivals"] = rivals.index(entry.rivals)
    return {
        "radii": list(table.radii),
        "grid": {"step": grid.step, "count": grid.count},
        "runs": described,
        "pairs": [[a, b, _short(gap), _short(error), images] for a, b, gap, error, images in compare_pairs(entries)],
        "images": _codes(runs, grid),
        "gallery": gallery(runs, votes, load),
        "heatmaps": [vars(heat_map(title, values)) for title, values in (corruptions or {}).items()],
    }


def settings(runs: Sequence[Run]) -> list[Json | None]:
    """Return the option, with its value, in which a run differs from those of its method, data set and noise level."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        if run.config and run.entry.method:
            groups.setdefault((run.entry.method, run.entry.group), []).append(run)
    found: dict[int, Json] = {}
    for members in groups.values():
        options = [run.config.options if run.config else {} for run in members]
        numbers = {key for option in options for key, value in option.items() if isinstance(value, int | float)}
        differing = [key for key in sorted(numbers) if len({option.get(key) for option in options}) > 1]
        if len(differing) == 1:
            for run, option in zip(members, options, strict=True):
                if differing[0] in option:
                    found[id(run)] = {"name": differing[0], "value": option[differing[0]]}
    return [found.get(id(run)) for run in runs]


def _describe(run: Run, row: Row, grid: curves.Grid, votes: Votes | None) -> Json:
    entry, results = run.entry, run.entry.results
    certified = results.predict >= 0
    wrong = certified & ~results.correct
    paper = paper_row(entry.dataset, entry.sigma, entry.method, *entry.paper)
    shares = vote_shares(results, votes, entry.sigma)
    return {
        "label": entry.title,
        "note": run.note,
        "dataset": entry.dataset,
        "set": TITLES.get(entry.dataset or "", entry.dataset or "data set not known"),
        "sigma": entry.sigma,
        "method": entry.method,
        "methodName": METHODS.get(entry.method or "", entry.name),
        "images": len(results),
        "n": entry.n,
        "acr": [row.acr.value, row.acr.standard_error if len(results) > 1 else None, row.acr.low, row.acr.high],
        "table": [round(value * len(results) / 100) for value in row.accuracy],
        "printed": [f"{row.acr.value:.3f}", *(f"{value:.1f}" for value in row.accuracy)],
        "right": curves.bins(results, grid, results.correct),
        "wrong": curves.bins(results, grid, wrong),
        "abstained": int((~certified).sum()),
        "votes": None if shares is None else _vote_bins(shares, results.correct, wrong, votes is not None),
        "paper": None
        if paper is None
        else {"acr": paper.acr, "accuracy": [[r, a] for r, a in sorted(paper.accuracy.items())]},
        "cost": cost(run, paper.hours if paper else None),
    }


def _vote_bins(shares: NDArray[np.float64], right: NDArray[np.bool_], wrong: NDArray[np.bool_], exact: bool) -> Json:
    kinds = {"right": right, "wrong": wrong, "abstained": ~right & ~wrong}
    return {"exact": exact} | {kind: curves.vote_bins(shares[chosen]) for kind, chosen in kinds.items()}


def _codes(runs: Sequence[Run], grid: curves.Grid) -> Json:
    """Return each image's step for each run, packed, and which images each run has, every list of them once."""
    lists: dict[tuple[int, ...], int] = {}
    which, packed = [], []
    for run in runs:
        indices = tuple(int(index) for index in np.sort(run.entry.results.idx))
        which.append(lists.setdefault(indices, len(lists)))
        packed.append(curves.codes(run.entry.results, grid).tobytes())
    body = base64.b64encode(zlib.compress(b"".join(packed), 9)).decode()
    return {"lists": [_compact(indices) for indices in lists], "which": which, "codes": body}


def _compact(indices: Sequence[int]) -> Json | list[int]:
    """Write evenly spaced indices as their start, step and number."""
    step = indices[1] - indices[0] if len(indices) > 1 else 1
    if all(b - a == step for a, b in pairwise(indices)):
        return {"start": indices[0], "step": step, "count": len(indices)}
    return list(indices)


def _short(value: float) -> float:
    return float(f"{value:.5g}")
