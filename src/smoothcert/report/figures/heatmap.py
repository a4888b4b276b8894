"""Heat maps of ACR by corruption, and by severity or network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from smoothcert.report.corrupted.means import KINDS
from smoothcert.report.corrupted.results import CorruptedResults
from smoothcert.report.figures.canvas import new_figure
from smoothcert.report.page.heatmap import corruption_maps, heat_map
from smoothcert.report.palette import HEAT


def draw_heat_map(networks: Sequence[CorruptedResults]) -> Any:
    """Draw the first heat map that the report page shows for these networks, with the numbers in the cells.

    The heat map shows the ACR of one network at several severities, or of several networks at one severity.
    """
    title, values = next(iter(corruption_maps(networks).items()))
    shown = heat_map(title, {key: value for key, value in values.items() if key[0] != "mean (paper)"})
    rows, columns, cells = shown["kinds"], shown["columns"], np.array(shown["values"], dtype=np.float64)
    figure = new_figure(1.9 + 0.62 * len(columns), 0.8 + 0.27 * len(rows))
    axes = figure.subplots()
    image = axes.imshow(cells, cmap=_color_map(), aspect="auto")
    middle = (np.nanmin(cells) + np.nanmax(cells)) / 2
    for row, column in np.argwhere(np.isfinite(cells)):
        text, color = f"{cells[row, column]:{KINDS['acr'][-1]}}", "white" if cells[row, column] > middle else "black"
        axes.text(column, row, text, ha="center", va="center", fontsize=7, color=color)
    for edge in (rows.index("mean") - 0.5, rows.index("mean") + 0.5) if "mean" in rows else ():
        axes.axhline(edge, color="white", linewidth=2)
    axes.set_xticks(range(len(columns)), columns, rotation=45, ha="right", rotation_mode="anchor", fontsize=8)
    axes.set_yticks(range(len(rows)), [name.replace("_", " ") for name in rows], fontsize=8)
    axes.set_title(title)
    figure.colorbar(image, ax=axes, fraction=0.08)
    return figure


def _color_map() -> Any:
    """Return a color map with the colors of the report page's heat maps in the light scheme."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("heat", HEAT["light"])
