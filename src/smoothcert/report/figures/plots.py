"""Figures with matplotlib (the extra `plots`), in the field's style: small panels, colours and dashes both tell."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.errors import SmoothcertError, unknown_name
from smoothcert.report.tables.paper_numbers import METHODS, PaperRow
from smoothcert.report.tables.table import Entry
from smoothcert.results.records import Results
from smoothcert.runtime.atomic_files import replacing
from smoothcert.statistics.metrics import average_certified_radius, certified_accuracy

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
class Point:
    """A run of a trade-off, the setting that is written beside it, and the paper's numbers where they are shown too."""

    results: Results
    setting: str = ""
    paper: PaperRow | None = None


@dataclass(frozen=True)
class Tradeoff:
    """A panel of clean accuracy against robustness: at a radius, or ACR where that is None; a line for each method."""

    radius: float | None
    lines: Mapping[str, Sequence[Point]]


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
        _write_settings(figure, panels)
        return figure


def _add_legend(figure: Any) -> None:
    """Explain the lines: below the figure where panels share them or there are many, else inside each panel."""
    lines = [axes.get_legend_handles_labels() for axes in figure.axes]
    named = {name: handle for handles, names in lines for handle, name in zip(handles, names, strict=True)}
    most = max((len(names) for _, names in lines), default=0)
    if most == len(named) and (len(lines) > 1 or most > 4):
        _add_legend_below(figure, named)
        return
    for axes in figure.axes:
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False)


def _add_legend_below(figure: Any, named: Mapping[str, Any]) -> None:
    """Explain lines below the figure, in as many columns as have room; many rows of them make it higher."""
    for columns in range(min(len(named), 3 if len(figure.axes) == 1 else 4 * len(figure.axes)), 0, -1):
        legend = figure.legend(
            named.values(), named, loc="outside lower center", ncols=columns, frameon=False, columnspacing=1.2
        )
        if legend.get_window_extent(figure.canvas.get_renderer()).width <= figure.bbox.width:
            break
        if columns > 1:
            legend.remove()
    rows = -(-len(named) // columns)
    figure.set_size_inches(figure.get_figwidth(), figure.get_figheight() + 0.16 * max(0, rows - 3))


def _looks(names: Iterable[str]) -> list[tuple[int, Any]]:
    """Return the place of each curve's colour and its dashes: a method looks the same in every figure.

    Variants of a method have its colour and other dashes; what is none has a colour that no method here has.
    """
    places = [_method_place(name) for name in names]
    free = [place for place in range(len(_COLOURS)) if place not in places] or list(range(len(_COLOURS)))
    own, looks, seen = 0, list[tuple[int, Any]](), Counter[int]()
    for known in places:
        place = free[own % len(free)] if known is None else known
        own += known is None
        dashes = [_STYLES[place], *(style for style in _STYLES[:-1] if style != _STYLES[place])]
        looks.append((place, dashes[seen[place] % len(dashes)]))
        seen[place] += 1
    return looks


def _method_place(name: str) -> int | None:
    """Return a method's place among the paper's by the name of one of its runs.

    >>> _method_place("CAT-RS"), _method_place("Stability, seed 1"), _method_place("mine")
    (6, 1, None)
    """
    for place, known in enumerate([*METHODS, *METHODS.values()]):
        if re.match(rf"{re.escape(known)}(,| \(| \[|$)", name, re.IGNORECASE):
            return place % len(METHODS)
    return None


def _draw_curves(axes: Any, panel: Curves) -> None:
    last = max(float(results.radius.max()) for results in panel.curves.values())
    radii = np.linspace(0, max(last, 0.05) * 1.03, 500)
    for (name, results), (look, dashes) in zip(panel.curves.items(), _looks(panel.curves), strict=True):
        accuracy = 100 * certified_accuracy(results.radius, results.correct, radii)
        axes.plot(radii, accuracy, label=name, color=_COLOURS[look], linestyle=dashes, linewidth=1.4)
    axes.set(xlabel=r"$\ell_2$ radius", ylabel="certified accuracy (%)", title=panel.title)
    axes.set(xlim=(0, radii[-1]), ylim=(0, 100))


def _draw_tradeoff(axes: Any, panel: Tradeoff) -> None:
    rings: list[tuple[Any, dict[str, Any]]] = []
    for (name, line), (look, dashes) in zip(panel.lines.items(), _looks(panel.lines), strict=True):
        style: dict[str, Any] = {"color": _COLOURS[look], "marker": _MARKS[look]}
        ours = [_place(point.results, panel.radius) for point in line]
        axes.plot(*zip(*ours, strict=True), label=name, linestyle=dashes, linewidth=1.2, markersize=4, **style)
        theirs = [place for point in line if (place := _paper_place(point.paper, panel.radius))]
        rings += [(theirs, style)] if theirs else []
    for theirs, style in rings:
        axes.plot(*zip(*theirs, strict=True), markersize=6.5, fillstyle="none", linestyle="", **style)
    if rings:
        axes.plot([], [], "o", color="grey", markersize=6.5, fillstyle="none", label="paper")
    robust = "ACR" if panel.radius is None else f"certified acc. at r = {panel.radius:.1f} (%)"
    axes.set(xlabel="clean accuracy (%)", ylabel=robust)


def _write_settings(figure: Any, panels: Sequence[Panel]) -> None:
    """Write settings beside their points, leaving out what has no room."""
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # so that places are known
    for axes, panel in zip(figure.axes, panels, strict=True):
        if isinstance(panel, Curves):
            continue
        points = [point for line in panel.lines.values() for point in line if point.setting]
        marks = [mark for line in axes.lines for mark in axes.transData.transform(line.get_xydata())]
        taken: list[Any] = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in marks]
        taken += [legend.get_window_extent()] if (legend := axes.get_legend()) else []
        for point in points:
            _write_beside(axes, point.setting, _place(point.results, panel.radius), taken)


def _write_beside(axes: Any, text: str, place: Any, taken: list[Any]) -> None:
    """Write a text right or left of a place, above or below it, where nothing is yet."""
    for offset, side in (((5, -2), "left"), ((-5, -2), "right"), ((0, 6), "center"), ((0, -11), "center")):
        written = axes.annotate(text, place, offset, textcoords="offset points", ha=side, fontsize=6.5)
        written.set_in_layout(False)
        box = written.get_window_extent()
        if axes.bbox.contains(*box.min) and axes.bbox.contains(*box.max) and not box.count_overlaps(taken):
            taken.append(box)
            return
        written.remove()


def _place(results: Results, radius: float | None) -> tuple[float, float]:
    """Return clean accuracy in percent and robustness."""
    clean, robust = 100 * certified_accuracy(results.radius, results.correct, [0.0, radius or 0.0])
    acr = average_certified_radius(results.radius, results.correct)
    return float(clean), acr if radius is None else float(robust)


def _paper_place(paper: PaperRow | None, radius: float | None) -> tuple[float, float] | None:
    if paper is None or 0.0 not in paper.accuracy or (radius is not None and radius not in paper.accuracy):
        return None
    return paper.accuracy[0.0], paper.acr if radius is None else paper.accuracy[radius]


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
