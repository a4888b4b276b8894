"""What certificates on corrupted images say: ACR and accuracy by corruption and severity, and their means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from smoothcert.dataset_names import CORRUPTIONS, canonical_name
from smoothcert.report.corrupted.network_results import CorruptedResults
from smoothcert.report.tables.formats import Cell, Grid, Sheet
from smoothcert.report.tables.paper_numbers import METHODS, paper_corruptions
from smoothcert.statistics import metrics

_SHORT = {"canny_edges": "edges", "dotted_line": "line", "brightness": "bright", "pixelate": "pixel"}
KINDS = {"acr": ("ACR", "radius", 1.0, ".3f"), "accuracy": ("acc %", "correct", 100.0, ".1f")}
"""What is measured: its title, the values it averages, their unit, and how it is printed."""


def short_name(corruption: str) -> str:
    """Return what the paper calls a corruption.

    >>> short_name("gaussian_noise"), short_name("canny_edges")
    ('gaussian', 'edges')
    """
    return _SHORT.get(corruption, corruption.partition("_")[0])


@dataclass(frozen=True)
class Summary:
    """ACR or accuracy: the mean over corruptions with its interval over images, and what it averages.

    Corruptions held out of the mean come last. `clean` is the value on the same images before they were corrupted,
    where that is known.
    """

    mean: metrics.Estimate
    by_corruption: Mapping[str, float]
    by_severity: Mapping[int, float]
    cells: Mapping[tuple[str, int], float]
    clean: float | None


def summarize(results: CorruptedResults, kind: str) -> Summary:
    """Return the summary of one kind of measure, `acr` or `accuracy`."""
    _, values_of, unit, _ = KINDS[kind]
    names, images = results.corruptions, results.images
    rows = [*names, *results.held_out]
    totals, counts = np.zeros((2, len(rows), len(images)))
    cells = {}
    for (corruption, severity), part in results.parts.items():
        values = unit * np.asarray(getattr(part, values_of), dtype=np.float64)
        cells[corruption, severity] = float(values.mean())
        where = np.searchsorted(images, part.images)
        np.add.at(totals[rows.index(corruption)], where, values)
        np.add.at(counts[rows.index(corruption)], where, 1.0)
    by_severity = {
        severity: float(np.mean([value for (name, at), value in cells.items() if at == severity and name in names]))
        for severity in results.severities
    }
    clean = None
    if results.clean is not None and np.isin(images, results.clean.images).all():
        before = np.asarray(getattr(results.clean, values_of), dtype=np.float64)
        clean = float(unit * before[np.isin(results.clean.images, images)].mean())
    by_corruption = dict(zip(rows, (totals.sum(axis=1) / counts.sum(axis=1)).tolist(), strict=True))
    mean = metrics.cluster_estimate(totals[: len(names)], counts[: len(names)])
    return Summary(mean, by_corruption, by_severity, cells, clean)


def corruption_groups(entries: Sequence[CorruptedResults]) -> list[list[CorruptedResults]]:
    """Return the networks of each data set, noise level and n, in the paper's order of methods."""
    order = [*METHODS, None]

    def key(entry: CorruptedResults) -> tuple[str, str, float, int]:
        return entry.suite, entry.dataset or "", entry.sigma or 0.0, entry.n or 0

    ranked = sorted(entries, key=lambda entry: (*key(entry), order.index(entry.method)))
    return [list(same) for _, same in groupby(ranked, key=key)]


def same_images(members: Sequence[CorruptedResults]) -> bool:
    """Whether all networks were certified on the same images, so that one can be called better than another."""
    return len({entry.images.tobytes() for entry in members}) == 1


def corruption_sheets(entries: Sequence[CorruptedResults], *, paper: bool = False) -> list[Sheet]:
    """Return one sheet for each data set, noise level and n, a group of lines for ACR and one for accuracy."""
    sheets = []
    for members in corruption_groups(entries):
        levels = sorted({level for entry in members for level in entry.severities})
        levels = levels if len(levels) > 1 else []
        there = {name for entry in members for name, _ in entry.parts}
        names = [name for name in CORRUPTIONS[members[0].suite] if name in there]
        held_out = sorted(there.difference(names))
        titles = [members[0].dataset or "", "sigma", "method", "mean", "+-", *map(short_name, names), *held_out]
        names += held_out
        titles += [*(f"sev {level}" for level in levels), "clean", "images", "n"]
        sheets.append(Sheet(titles, [_group(members, kind, names, levels, paper) for kind in KINDS]))
    return sheets


def _group(
    members: Sequence[CorruptedResults], kind: str, names: Sequence[str], levels: Sequence[int], paper: bool
) -> Grid:
    title, _, _, form = KINDS[kind]
    summaries = [summarize(entry, kind) for entry in members]
    columns = [_numbers(summary, names, levels) for summary in summaries]
    ranks = [
        sorted({f"{value:{form}}" for value in column if value}, key=float) for column in zip(*columns, strict=True)
    ]
    comparable = len(members) > 1 and same_images(members)
    lines = []
    for entry, summary, numbers in zip(members, summaries, columns, strict=True):
        texts = ["" if value is None else f"{value:{form}}" for value in numbers]
        marks = [_mark(text, rank) if comparable else "" for text, rank in zip(texts, ranks, strict=True)]
        cells = [Cell(text, mark) for text, mark in zip(texts, marks, strict=True)]
        spread = Cell(f"{summary.mean.standard_error:{form}}")
        about = [Cell(title), Cell(f"{entry.sigma:.2f}" if entry.sigma else "?"), Cell(entry.name)]
        end = [Cell(f"{len(entry.images):,}"), Cell(f"{entry.n:,}" if entry.n else "?")]
        lines.append([*about, cells[0], spread, *cells[1:], *end])
        if paper and (beside := paper_beside(entry, kind)):
            known = CORRUPTIONS[entry.suite]
            types = [beside.get(short_name(name)) if name in known else None for name in names]
            printed = [beside.get("mean"), None, *types]
            printed += [*(beside.get(f"sev {level}") for level in levels), beside.get("clean"), None, None]
            shown = ["" if value is None else f"{value:{form}}" for value in printed]
            lines.append([Cell(""), Cell(""), Cell("  paper"), *map(Cell, shown)])
    return lines


def paper_beside(entry: CorruptedResults, kind: str) -> dict[str, float]:
    """Return the paper's numbers, which are of its own two sets at sigma 0.25, for results of these."""
    own = canonical_name(entry.dataset or entry.suite) == entry.suite and entry.sigma in (None, 0.25)
    return paper_corruptions(entry.suite, entry.method, kind) if own and not entry.protocol else {}


def _numbers(summary: Summary, names: Sequence[str], levels: Sequence[int]) -> list[float | None]:
    types = [summary.by_corruption.get(name) for name in names]
    return [summary.mean.value, *types, *(summary.by_severity.get(level) for level in levels), summary.clean]


def _mark(text: str, rank: Sequence[str]) -> str:
    if not text or text not in rank[-2:]:
        return ""
    return "best" if text == rank[-1] else "second"


def corruptions_json(entries: Sequence[CorruptedResults], *, paper: bool = False) -> list[dict[str, Any]]:
    """Return everything as plain values: the means (mACR, mAcc) with intervals, and every value they average."""
    return [_entry_json(entry, paper) for entry in entries]


def _entry_json(entry: CorruptedResults, paper: bool) -> dict[str, Any]:
    about: dict[str, Any] = {
        "name": entry.name,
        "dataset": entry.dataset,
        "sigma": entry.sigma,
        "method": entry.method,
        "n": entry.n,
        "images": len(entry.images),
        "missing": entry.missing,
    }
    for kind, name in (("acr", "mACR"), ("accuracy", "mAcc")):
        summary = summarize(entry, kind)
        about[name] = vars(summary.mean)
        about[kind] = {
            "by_corruption": dict(summary.by_corruption),
            "by_severity": {str(level): value for level, value in summary.by_severity.items()},
            "cells": {f"{corruption}/{severity}": value for (corruption, severity), value in summary.cells.items()},
            "clean": summary.clean,
        }
        if paper:
            about[kind]["paper"] = paper_beside(entry, kind)
    return about
