"""Corruption against severity as a picture: where a network keeps its certificates and where it loses them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from smoothcert.report.corrupted import CorruptedResults
from smoothcert.report.corruptions import KINDS, summarize
from smoothcert.report.figures import new_figure, save_figure


def draw_heat_map(results: CorruptedResults, path: Path) -> None:
    """Draw ACR by corruption and severity, the numbers in their cells, to any type matplotlib writes."""
    title, _, _, form = KINDS["acr"]
    summary, names = summarize(results, "acr"), [*results.corruptions, *results.held_out]
    levels = sorted({level for _, level in summary.cells})
    values = np.array([[summary.cells.get((name, level), np.nan) for level in levels] for name in names])
    figure = new_figure(1.9 + 0.62 * len(levels), 0.8 + 0.27 * len(names))
    axes = figure.subplots()
    shown = axes.imshow(values, cmap="cividis", aspect="auto")
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for row, column in np.argwhere(np.isfinite(values)):
        value = values[row, column]
        colour = "black" if value > middle else "white"
        axes.text(column, row, f"{value:{form}}", ha="center", va="center", fontsize=7, color=colour)
    axes.set_xticks(range(len(levels)), [str(level) for level in levels])
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names], fontsize=8)
    axes.set(
        xlabel="severity" if len(levels) > 1 else "", title=f"{results.name}: mean {title} {summary.mean.value:{form}}"
    )
    figure.colorbar(shown, ax=axes, fraction=0.08)
    save_figure(figure, path)
