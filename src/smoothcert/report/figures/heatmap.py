"""Heat maps of ACR or accuracy by corruption, and by severity or network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.report.corrupted.means import KINDS, summarize
from smoothcert.report.corrupted.results import CorruptedResults, same_images
from smoothcert.report.figures.canvas import new_figure, save_figure


def draw_heat_map(results: CorruptedResults, path: Path) -> None:
    """Draw ACR by corruption and severity, with the numbers in the cells, to any type that matplotlib supports."""
    title, _, _, form = KINDS["acr"]
    summary, names = summarize(results, "acr"), [*results.corruptions, *results.held_out]
    levels = sorted({level for _, level in summary.cells})
    values = [[summary.cells.get((name, level)) for level in levels] for name in names]
    figure, axes = _draw_cells(values, names, list(map(str, levels)), form)
    axes.set(
        xlabel="severity" if len(levels) > 1 else "", title=f"{results.name}: mean {title} {summary.mean.value:{form}}"
    )
    save_figure(figure, path)


def draw_network_map(networks: Sequence[CorruptedResults], path: Path, kind: str = "acr") -> None:
    """Draw ACR or accuracy by corruption and network, with the means, for results of a single severity."""
    title, _, _, form = KINDS[kind]
    summaries = [summarize(results, kind) for results in networks]
    names = list(dict.fromkeys(name for results in networks for name in results.corruptions))
    held_out = list(dict.fromkeys(name for results in networks for name in results.held_out))
    values = [[summary.by_corruption.get(name) for summary in summaries] for name in (*names, *held_out)]
    values.insert(len(names), [summary.mean.value for summary in summaries])
    count = "" if same_images(networks) else "\n{:,} images"
    columns = [results.name + count.format(len(results.images)) for results in networks]
    figure, axes = _draw_cells(values, [*names, "mean", *held_out], columns, form)
    for edge in (len(names) - 0.5, len(names) + 0.5):
        axes.axhline(edge, color="white", linewidth=2)
    axes.tick_params("x", labelrotation=45)
    for label in axes.get_xticklabels():
        label.set(ha="right", rotation_mode="anchor", fontsize=8)
    sigma = rf", $\sigma={networks[0].sigma:.2f}$" if networks[0].sigma else ""
    axes.set_title(f"{networks[0].dataset or networks[0].suite}{sigma}: {title}")
    save_figure(figure, path)


def _draw_cells(
    cells: Sequence[Sequence[float | None]], rows: Sequence[str], columns: Sequence[str], form: str
) -> tuple[Any, Any]:
    values = np.array(cells, dtype=np.float64)
    figure = new_figure(1.9 + 0.62 * len(columns), 0.8 + 0.27 * len(rows))
    axes = figure.subplots()
    shown = axes.imshow(values, cmap="cividis", aspect="auto")
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for row, column in np.argwhere(np.isfinite(values)):
        value = values[row, column]
        colour = "black" if value > middle else "white"
        axes.text(column, row, f"{value:{form}}", ha="center", va="center", fontsize=7, color=colour)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), [name.replace("_", " ") for name in rows], fontsize=8)
    figure.colorbar(shown, ax=axes, fraction=0.08)
    return figure, axes
