"""Build the JSON-compatible data from which the report page's scripts draw charts and compute statistics."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from smoothcert.report.corrupted.results import CorruptedResults
from smoothcert.report.groups import grouped
from smoothcert.report.page.corruption_message import corruption_message, without_clean_run
from smoothcert.report.page.gallery import Load, build_gallery
from smoothcert.report.page.heatmap import HeatMapValues, heat_map
from smoothcert.report.page.message import dataset_messages
from smoothcert.report.page.radius_grid import RadiusGrid, grid_for, image_codes, radius_counts
from smoothcert.report.page.run_history import cost, training_curves
from smoothcert.report.page.votes import Votes, read_estimation, vote_shares
from smoothcert.report.palette import METHOD_COLORS
from smoothcert.report.sources import Run
from smoothcert.report.symbols import with_symbols
from smoothcert.report.tables.formats import TEXT_COLUMNS, TEXT_FORMATS, dataset_title, row_lines, sheet
from smoothcert.report.tables.paired import compare_pairs
from smoothcert.report.tables.paper_numbers import paper_row
from smoothcert.report.tables.table import Table, TableRow
from smoothcert.runtime.typed_files import Json
from smoothcert.training.known_methods import method_title
from smoothcert.training.passes import all_options

_PATH = re.compile(r"""(?:(?<![^\s"'(=])(?:~|\.\.)?|\b[A-Za-z]:)[/\\](?:[^\s/\\"']+[/\\])+([^\s/\\"']*)""")
# Bin edges of the histograms of vote shares; bins are narrower near 1, where the radius grows without bound.
_SHARE_EDGES = [tenth / 10 for tenth in range(10)]
_SHARE_EDGES += [0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9998, 0.9999, 1.0]

_LONGEST_TEXT = 5000  # longer texts are encoded images


def build_content(
    runs: Sequence[Run],
    table: Table,
    load: Load | None,
    corruptions: Mapping[str, HeatMapValues],
    networks: Sequence[CorruptedResults] = (),
) -> Json:
    """Return the data for the report page's scripts; runs must be in the order of the table's rows.

    `networks` are the results on corrupted images, which the page summarizes in sentences.
    """
    entries = [run.entry for run in runs]
    grid = grid_for(entries)
    votes = [read_estimation(run.path, len(run.entry.results)) for run in runs]
    points = 100 if len(runs) <= 40 else 40
    rivals = list(dict.fromkeys(entry.rivals for entry in entries))
    described = [
        _run_json(run, row, table, grid, run_votes)
        | {"setting": option, "training": training_curves(run, points), "rivals": rivals.index(run.entry.rivals)}
        for run, row, run_votes, option in zip(runs, table.rows, votes, varied_options(runs), strict=True)
    ]
    content: Json = without_folders(
        {
            "radii": list(table.radii),
            "messages": dataset_messages(table, runs, without_clean_run(networks, entries)),
            "corruptionMessage": corruption_message(networks, runs),
            "corruptionLeads": len(networks) >= max(1, len(runs) / 2),
            "colors": METHOD_COLORS,
            "formats": {suffix: vars(form) for suffix, form in TEXT_FORMATS.items()},
            "textColumns": list(TEXT_COLUMNS),
            "titles": sheet(table).titles,
            "shareEdges": _SHARE_EDGES,
            "grid": {"step": grid.step, "count": grid.count},
            "runs": described,
            "pairs": [
                [a, b, float(f"{gap.value:.5g}"), float(f"{gap.standard_error:.5g}")]
                for a, b, gap in compare_pairs(entries)
            ],
            "images": _images_json(runs, grid),
            "gallery": build_gallery(runs, votes, load),
            "heatmaps": [heat_map(title, values) for title, values in corruptions.items()],
        }
    )
    return content


def varied_options(runs: Sequence[Run]) -> list[Json | None]:
    """Return, for each run, the numerical option that varies among the runs of its method, dataset and noise level.

    Each item contains the option's name and value; it is None unless exactly one numerical option varies.
    """
    options = {at: all_options(run.config) for at, run in enumerate(runs) if run.config and run.entry.method}
    varied: list[Json | None] = [None] * len(runs)
    for members in grouped(options, lambda at: (runs[at].entry.method, runs[at].entry.group)):
        numbers = {key for at in members for key, value in options[at].items() if isinstance(value, int | float)}
        differing = [key for key in numbers if len({options[at].get(key) for at in members}) > 1]
        for at in members:
            if len(differing) == 1 and differing[0] in options[at]:
                varied[at] = {"name": differing[0], "value": options[at][differing[0]]}
    return varied


def _run_json(run: Run, row: TableRow, table: Table, grid: RadiusGrid, votes: Votes | None) -> Json:
    entry, results = run.entry, run.entry.results
    certified = results.predict >= 0
    outcomes = {"correct": results.correct, "wrong": certified & ~results.correct, "abstained": ~certified}
    paper = paper_row(entry.dataset, entry.sigma, entry.method, *entry.paper)
    shares = vote_shares(results, votes, entry.sigma)
    first = 0 if table.several_sets else 1  # as in `without_single_dataset`
    return {
        "label": with_symbols(entry.title),
        "name": with_symbols(entry.name),
        "note": run.note,
        "dataset": entry.dataset,
        "datasetName": dataset_title(entry.dataset) if entry.dataset else "unknown dataset",
        "sigma": entry.sigma,
        "method": entry.method,
        "methodName": method_title(entry.method, with_symbols(entry.name)),
        "images": len(results),
        "n": entry.n,
        "acr": [row.acr.value, row.acr.standard_error if len(results) > 1 else None, row.acr.low, row.acr.high],
        "table": [round(value * len(results) / 100) for value in row.accuracy],
        "printed": [f"{row.acr.value:.3f}", *(f"{value:.1f}" for value in row.accuracy)],
        "interval": [f"{row.acr.low:.3f}", f"{row.acr.high:.3f}"],
        "correct": radius_counts(results, grid, outcomes["correct"]),
        "wrong": radius_counts(results, grid, outcomes["wrong"]),
        "abstained": int(outcomes["abstained"].sum()),
        "votes": None
        if shares is None
        else {"exact": votes is not None}
        | {kind: np.histogram(shares[chosen], _SHARE_EDGES)[0].tolist() for kind, chosen in outcomes.items()},
        "paper": None
        if paper is None
        else {"acr": paper.acr, "accuracy": [[r, a] for r, a in sorted(paper.accuracy.items())]},
        "cost": cost(run, paper.hours if paper else None),
        "cells": [[cell.text for cell in line[first:]] for line in row_lines(row, table, paper)],
    }


def _images_json(runs: Sequence[Run], grid: RadiusGrid) -> Json:
    """Return the compressed image codes of all runs, the distinct lists of image indices, and each run's list."""
    lists: dict[tuple[int, ...], int] = {}
    which, codes = [], []
    for run in runs:
        indices = tuple(int(index) for index in np.sort(run.entry.results.idx))
        which.append(lists.setdefault(indices, len(lists)))
        codes.append(image_codes(run.entry.results, grid).tobytes())
    packed = base64.b64encode(zlib.compress(b"".join(codes), 9)).decode()
    return {"lists": [_compact(indices) for indices in lists], "which": which, "codes": packed}


def _compact(indices: Sequence[int]) -> Json | list[int]:
    """Return evenly spaced indices as start, step and count, and other indices as a list."""
    step = indices[1] - indices[0] if len(indices) > 1 else 1
    if all(b - a == step for a, b in pairwise(indices)):
        return {"start": indices[0], "step": step, "count": len(indices)}
    return list(indices)


def without_folders(content: Any) -> Any:
    """Replace absolute paths, and paths that start with `~` or `..`, with their last part in all texts.

    The report page is meant to be shared, so it should not contain the names of private folders.

    >>> without_folders({"a": ["no file /home/me/data/mnist.npz here", "1/2"]})
    {'a': ['no file mnist.npz here', '1/2']}
    """
    if isinstance(content, dict):
        return {key: without_folders(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [without_folders(value) for value in content]
    if isinstance(content, str) and len(content) < _LONGEST_TEXT:
        return _PATH.sub(r"\1", content)
    return content
