"""Figures with matplotlib (the extra `plots`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.errors import SmoothcertError
from smoothcert.metrics import certified_accuracy
from smoothcert.report.table import Entry

# Okabe and Ito's colours, which the colour-blind can tell apart; line styles help in print.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), "-")


def plot_certified_accuracy(entries: Sequence[Entry], path: Path, title: str = "") -> None:
    """Draw certified accuracy against radius, one curve a result, to a file of any type matplotlib writes."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise SmoothcertError("Figures need matplotlib: pip install 'smoothcert[plots]'.") from None
    figure = Figure(figsize=(5.2, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    last = max(float(entry.results.radius.max()) for entry in entries)
    radii = np.linspace(0, last * 1.05, 500)
    for number, entry in enumerate(entries):
        results = entry.results
        accuracy = 100 * certified_accuracy(results.radius, results.correct, radii)
        style: dict[str, Any] = {"color": _COLOURS[number % 7], "linestyle": _STYLES[number % 7], "linewidth": 1.8}
        axes.plot(radii, accuracy, label=entry.name, **style)
    axes.set(xlabel="l2 radius", ylabel="certified accuracy (%)", title=title, xlim=(0, radii[-1]), ylim=(0, 100))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)
