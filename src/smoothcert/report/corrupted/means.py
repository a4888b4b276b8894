"""ACR and accuracy by corruption and severity, and their means over corruptions (mACR, mAcc)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from smoothcert.report.corrupted.results import CorruptedResults
from smoothcert.statistics import metrics

KINDS = {"acr": ("ACR", "radius", 1.0, ".3f"), "accuracy": ("acc %", "correct", 100.0, ".1f")}
"""Measures: title, averaged field of `CorruptionPart`, factor to the printed unit, and number format."""


@dataclass(frozen=True)
class Summary:
    """One measure of a network: its mean over corruptions, with a confidence interval, and the averaged values."""

    mean: metrics.Estimate
    by_corruption: Mapping[str, float]  # corruptions that do not count toward the mean come last
    by_severity: Mapping[int, float]
    cells: Mapping[tuple[str, int], float]
    clean: float | None  # on the same images before corruption; None unless all of them have results


def summarize(results: CorruptedResults, kind: str) -> Summary:
    """Return the summary of one measure, `acr` or `accuracy`."""
    _, column, unit, _ = KINDS[kind]
    names, images = results.corruptions, results.images
    rows = [*names, *results.held_out]
    totals, counts = np.zeros((2, len(rows), len(images)))
    cells = {}
    for (corruption, severity), part in results.parts.items():
        values = unit * np.asarray(getattr(part, column), dtype=np.float64)
        cells[corruption, severity] = float(values.mean())
        positions = np.searchsorted(images, part.images)
        np.add.at(totals[rows.index(corruption)], positions, values)
        np.add.at(counts[rows.index(corruption)], positions, 1.0)
    by_severity = {
        severity: float(np.mean([value for (name, at), value in cells.items() if at == severity and name in names]))
        for severity in results.severities
    }
    clean = None
    if results.clean is not None and np.isin(images, results.clean.images).all():
        values = np.asarray(getattr(results.clean, column), dtype=np.float64)
        clean = float(unit * values[np.isin(results.clean.images, images)].mean())
    by_corruption = dict(zip(rows, (totals.sum(axis=1) / counts.sum(axis=1)).tolist(), strict=True))
    mean = metrics.cluster_estimate(totals[: len(names)], counts[: len(names)])
    return Summary(mean, by_corruption, by_severity, cells, clean)
