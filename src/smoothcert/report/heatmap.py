"""Corruption against severity as a picture: where a network keeps its certificates and where it loses them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from smoothcert.errors import SmoothcertError
from smoothcert.report.corrupted import CorruptedResults
from smoothcert.report.corruptions import KINDS, summarize


def draw_heat_map(results: CorruptedResults, path: Path, kind: str = "acr") -> None:
    """Draw ACR or accuracy by corruption and severity, the numbers in their cells, to any type matplotlib writes."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise SmoothcertError("Figures need matplotlib: pip install 'smoothcert[plots]'.") from None
    title, _, _, form = KINDS[kind]
    summary, names, levels = summarize(results, kind), results.corruptions, results.severities
    values = np.array([[summary.cells.get((name, level), np.nan) for level in levels] for name in names])
    figure = Figure(figsize=(1.9 + 0.62 * len(levels), 0.8 + 0.27 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
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
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)
