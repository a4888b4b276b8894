"""Figures with matplotlib (the extra `plots`), in the field's style: small panels, colours and dashes both tell."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.errors import SmoothcertError, unknown_name
from smoothcert.metrics import average_certified_radius, certified_accuracy
from smoothcert.report.paper import METHODS
from smoothcert.report.table import Entry
from smoothcert.results import Results
from smoothcert.storage import replacing

SUFFIXES = (".pdf", ".svg", ".png")

# Okabe and Ito's colours, which the colour-blind can tell apart; line styles and marks help in print.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), "-")
_MARKS = "osD^vPX"
_OUT: dict[Any, Any] = {
    "svg.hashsalt": "smoothcert",
    "pdf.fonttype": 42,
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "legend.fontsize": 7.5,
}
_UNDATED: Mapping[str, dict[str, Any]] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {}}


@dataclass(frozen=True)
class Curves:
    """A panel of certified accuracy against radius: results by the names of their curves."""

    title: str
    curves: Mapping[str, Results]


@dataclass(frozen=True)
class Tradeoff:
    """A panel of clean accuracy against robustness: at a radius, or ACR where that is None; a line for each method."""

    radius: float | None
    lines: Mapping[str, Sequence[Results]]


Panel = Curves | Tradeoff


def plot_certified_accuracy(entries: Sequence[Entry], path: Path, title: str = "") -> None:
    """Draw certified accuracy against radius, one curve a result, to a file of any type matplotlib writes."""
    save_figure(_draw([Curves(title, {entry.name: entry.results for entry in entries})], (5.2, 3.6)), path)


def write_figure(panels: Sequence[Panel], stem: Path) -> list[Path]:
    """Draw panels side by side and write them as PDF, SVG and PNG; the same panels give the same bytes."""
    figure = _draw(panels, (2.9 * len(panels), 2.7) if len(panels) > 1 else (4.2, 3.2))
    paths = [stem.with_name(stem.name + suffix) for suffix in SUFFIXES]
    for path in paths:
        save_figure(figure, path)
    return paths


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of a size in inches."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise SmoothcertError("Figures need matplotlib: pip install 'smoothcert[plots]'.") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _draw(panels: Sequence[Panel], size: tuple[float, float]) -> Any:
    figure = new_figure(*size)
    import matplotlib

    with matplotlib.rc_context(_OUT):
        for number, panel in enumerate(panels):
            axes = figure.add_subplot(1, len(panels), number + 1)
            if isinstance(panel, Curves):
                _draw_curves(axes, panel)
            else:
                _draw_tradeoff(axes, panel)
            axes.grid(alpha=0.3, linewidth=0.6)
        _add_legend(figure)
        return figure


def _add_legend(figure: Any) -> None:
    """Explain the lines: below the figure where panels share them or there are many, else inside each panel."""
    lines = [axes.get_legend_handles_labels() for axes in figure.axes]
    named = {name: handle for handles, names in lines for handle, name in zip(handles, names, strict=True)}
    most = max((len(names) for _, names in lines), default=0)
    if most == len(named) and (len(lines) > 1 or most > 4):
        columns = min(len(named), 3 if len(lines) == 1 else 4 * len(lines))
        figure.legend(
            named.values(), named, loc="outside lower center", ncols=columns, frameon=False, columnspacing=1.2
        )
        return
    for axes in figure.axes:
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False)


def _style(name: str, number: int) -> int:
    """Return a method's place among the paper's, so that it looks the same in every figure; others go by number."""
    names = [known.lower() for known in (*METHODS, *METHODS.values())]
    return names.index(name.lower()) % len(METHODS) if name.lower() in names else number % len(_COLOURS)


def _draw_curves(axes: Any, panel: Curves) -> None:
    last = max(float(results.radius.max()) for results in panel.curves.values())
    radii = np.linspace(0, max(last, 0.05) * 1.03, 500)
    for number, (name, results) in enumerate(panel.curves.items()):
        look = _style(name, number)
        accuracy = 100 * certified_accuracy(results.radius, results.correct, radii)
        axes.plot(radii, accuracy, label=name, color=_COLOURS[look], linestyle=_STYLES[look], linewidth=1.4)
    axes.set(xlabel=r"$\ell_2$ radius", ylabel="certified accuracy (%)", title=panel.title)
    axes.set(xlim=(0, radii[-1]), ylim=(0, 100))


def _draw_tradeoff(axes: Any, panel: Tradeoff) -> None:
    for number, (name, line) in enumerate(panel.lines.items()):
        look = _style(name, number)
        clean = [100 * float(certified_accuracy(r.radius, r.correct, 0.0)[0]) for r in line]
        style: dict[str, Any] = {"color": _COLOURS[look], "linestyle": _STYLES[look], "marker": _MARKS[look]}
        axes.plot(clean, [_robustness(r, panel.radius) for r in line], label=name, linewidth=1.2, markersize=4, **style)
    robust = "ACR" if panel.radius is None else f"certified acc. at r = {panel.radius:.1f} (%)"
    axes.set(xlabel="clean accuracy (%)", ylabel=robust)


def _robustness(results: Results, radius: float | None) -> float:
    if radius is None:
        return average_certified_radius(results.radius, results.correct)
    return 100 * float(certified_accuracy(results.radius, results.correct, radius)[0])


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure to a file of any type matplotlib writes, the same bytes every time."""
    import matplotlib

    known = figure.canvas.get_supported_filetypes()
    if path.suffix.lstrip(".") not in known:
        raise unknown_name("kind of picture", path.suffix, [f".{kind}" for kind in known])
    drawn = io.BytesIO()  # first, since matplotlib fails in many ways on a disk that is full
    with matplotlib.rc_context(_OUT):
        figure.savefig(drawn, dpi=200, format=path.suffix.lstrip("."), metadata=_UNDATED.get(path.suffix))
    with replacing(path) as part:
        part.write_bytes(drawn.getvalue())
