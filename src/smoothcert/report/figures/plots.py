"""Draw panels of certified accuracy, of p_A, and of the trade-off between clean accuracy and robustness."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.report.figures.canvas import STYLE, new_figure, save_figure
from smoothcert.report.palette import LIGHT, METHOD_COLORS
from smoothcert.report.tables.entries import Entry
from smoothcert.report.tables.paper_numbers import PAPER_METHODS, PaperRow
from smoothcert.results.records import Results
from smoothcert.statistics.evaluation import share_up_to
from smoothcert.statistics.metrics import average_certified_radius, certified_accuracy

# The report page's colors, in the order of the methods; line styles and markers tell runs apart in black and white.
_COLORS = tuple(LIGHT[METHOD_COLORS[method]] for method in PAPER_METHODS)
_STYLES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), "-")
_MARKERS = "osD^vPX"


T = TypeVar("T")


class Panel(Protocol):
    """A plot that `draw_panels` places beside others."""

    def draw(self, axes: Any) -> None:
        """Draw the plot."""


@dataclass(frozen=True)
class Curves:
    """A panel of certified accuracy by radius; `curves` maps the name of a curve to its results."""

    title: str
    curves: Mapping[str, Results]

    def draw(self, axes: Any) -> None:
        """Draw a curve per result, up to the largest radius."""
        last = max(float(results.radius.max()) for results in self.curves.values())
        radii = np.linspace(0, max(last, 0.05) * 1.03, 500)
        for name, results, index, dashes in _styled(self.curves):
            accuracy = 100 * certified_accuracy(results.radius, results.correct, radii)
            axes.plot(radii, accuracy, label=name, color=_COLORS[index], linestyle=dashes, linewidth=1.4)
        axes.set(xlabel=r"$\ell_2$ radius", ylabel="certified accuracy (%)", title=self.title)
        axes.set(xlim=(0, radii[-1]), ylim=(0, 100))


@dataclass(frozen=True)
class Distributions:
    """A panel of cumulative distributions of p_A; `curves` maps the name of a curve to the p_A of each image."""

    title: str
    curves: Mapping[str, NDArray[np.float64]]

    def draw(self, axes: Any) -> None:
        """Draw a curve per distribution."""
        p = np.linspace(0, 1, 501)
        for name, shares, index, dashes in _styled(self.curves):
            share = 100 * share_up_to(shares, p)
            axes.plot(p, share, label=name, color=_COLORS[index], linestyle=dashes, linewidth=1.4)
        axes.set(xlabel="$p_A$", ylabel="images with at most this $p_A$ (%)", title=self.title)
        axes.set(xlim=(0, 1), ylim=(0, None))


@dataclass(frozen=True)
class Point:
    """A point in a trade-off panel: a run's results, its setting as a label and, optionally, the paper's numbers."""

    results: Results
    setting: str = ""
    paper: PaperRow | None = None

    def place(self, radius: float | None) -> tuple[float, float]:
        """Return clean accuracy, and certified accuracy at `radius` or, if it is None, ACR; accuracies in percent."""
        results = self.results
        clean, robust = 100 * certified_accuracy(results.radius, results.correct, [0.0, radius or 0.0])
        acr = average_certified_radius(results.radius, results.correct)
        return float(clean), acr if radius is None else float(robust)

    def paper_place(self, radius: float | None) -> tuple[float, float] | None:
        """Return the same numbers from the paper, or None if it does not state them."""
        if self.paper is None or not {0.0, radius or 0.0} <= set(self.paper.accuracy):
            return None
        return self.paper.accuracy[0.0], self.paper.acr if radius is None else self.paper.accuracy[radius]


@dataclass(frozen=True)
class Tradeoff:
    """A panel of robustness against clean accuracy, with one line per method."""

    radius: float | None  # of the certified accuracy; None stands for ACR
    lines: Mapping[str, Sequence[Point]]

    def draw(self, axes: Any) -> None:
        """Draw a line per method, and rings for the paper's numbers."""
        rings: list[tuple[Any, dict[str, Any]]] = []
        for name, line, index, dashes in _styled(self.lines):
            style: dict[str, Any] = {"color": _COLORS[index], "marker": _MARKERS[index]}
            places = [point.place(self.radius) for point in line]
            axes.plot(*zip(*places, strict=True), label=name, linestyle=dashes, linewidth=1.2, markersize=4, **style)
            printed = [place for point in line if (place := point.paper_place(self.radius))]
            rings += [(printed, style)] if printed else []
        for printed, style in rings:
            axes.plot(*zip(*printed, strict=True), markersize=6.5, fillstyle="none", linestyle="", **style)
        if rings:
            axes.plot([], [], "o", color="gray", markersize=6.5, fillstyle="none", label="paper")
        robust = "ACR" if self.radius is None else f"certified acc. at r = {self.radius:.1f} (%)"
        axes.set(xlabel="clean accuracy (%)", ylabel=robust)


def plot_certified_accuracy(entries: Sequence[Entry], path: Path, title: str = "") -> None:
    """Plot certified accuracy against radius, one curve per entry, and save it in the format of the path's suffix."""
    save_figure(draw_panels([Curves(title, {entry.name: entry.results for entry in entries})], (5.2, 3.6)), path)


def draw_panels(panels: Sequence[Panel], size: tuple[float, float] | None = None) -> Any:
    """Return a figure with the panels side by side; the size is in inches."""
    figure = new_figure(*(size or ((2.9 * len(panels), 2.7) if len(panels) > 1 else (4.2, 3.2))))
    import matplotlib

    with matplotlib.rc_context(STYLE):
        for number, panel in enumerate(panels):
            axes = figure.add_subplot(1, len(panels), number + 1)
            panel.draw(axes)
            axes.grid(alpha=0.3, linewidth=0.6)
        _add_legend(figure)
        _label_settings(figure, panels)
        return figure


def _add_legend(figure: Any) -> None:
    """Add a legend to each panel, or one shared legend below the figure.

    The legend is shared if one panel contains all lines, and there are several panels or more than four lines.
    """
    lines = [axes.get_legend_handles_labels() for axes in figure.axes]
    named = {name: handle for handles, names in lines for handle, name in zip(handles, names, strict=True)}
    most = max(len(names) for _, names in lines)
    if most == len(named) and (len(lines) > 1 or most > 4):
        _add_legend_below(figure, named)
    else:
        for axes in figure.axes:
            if axes.get_legend_handles_labels()[0]:
                axes.legend(frameon=False)


def _add_legend_below(figure: Any, named: Mapping[str, Any]) -> None:
    """Add a legend with as many columns as fit; a figure with many legend rows is made taller."""
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


def _styled(lines: Mapping[str, T]) -> Iterator[tuple[str, T, int, Any]]:
    """Yield name and value of each line, with the index of its color and marker, and its dash pattern.

    A method has the same color in every figure. Its variants share this color and differ in dashes. Other runs get
    colors that no method in the plot uses or, if none are left, any colors.
    """
    methods = [_method_index(name) for name in lines]
    free = cycle([index for index in range(len(_COLORS)) if index not in methods] or range(len(_COLORS)))
    seen = Counter[int]()
    for (name, line), method in zip(lines.items(), methods, strict=True):
        index = next(free) if method is None else method
        dashes = [_STYLES[index], *(style for style in _STYLES[:-1] if style != _STYLES[index])]
        yield name, line, index, dashes[seen[index] % len(dashes)]
        seen[index] += 1


def _method_index(name: str) -> int | None:
    """Return the position, in the paper's list of methods, of the method that a run is named after.

    >>> _method_index("CAT-RS"), _method_index("Stability, seed 1"), _method_index("mine")
    (6, 1, None)
    """
    for index, known in enumerate([*PAPER_METHODS, *PAPER_METHODS.values()]):
        if re.match(rf"{re.escape(known)}(,| \(| \[|$)", name, re.IGNORECASE):
            return index % len(PAPER_METHODS)
    return None


def _label_settings(figure: Any, panels: Sequence[Panel]) -> None:
    """Label points with their settings; omit labels that would overlap something."""
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # computes the layout
    for axes, panel in zip(figure.axes, panels, strict=True):
        if not isinstance(panel, Tradeoff):
            continue
        points = [point for line in panel.lines.values() for point in line if point.setting]
        marks = [mark for line in axes.lines for mark in axes.transData.transform(line.get_xydata())]
        taken: list[Any] = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in marks]
        taken += [legend.get_window_extent()] if (legend := axes.get_legend()) else []
        for point in points:
            _label_point(axes, point.setting, point.place(panel.radius), taken)


def _label_point(axes: Any, text: str, place: Any, taken: list[Any]) -> None:
    """Write a label to the right or left of a point, above it or below it, if one of these positions is free."""
    for offset, side in (((5, -2), "left"), ((-5, -2), "right"), ((0, 6), "center"), ((0, -11), "center")):
        label = axes.annotate(text, place, offset, textcoords="offset points", ha=side, fontsize=6.5)
        label.set_in_layout(False)
        box = label.get_window_extent()
        if axes.bbox.contains(*box.min) and axes.bbox.contains(*box.max) and not box.count_overlaps(taken):
            taken.append(box)
            return
        label.remove()
