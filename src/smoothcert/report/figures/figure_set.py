"""Select figures for a set of runs: one or two per dataset and noise level, and figures 2 to 6 of the paper."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from smoothcert.report.figures.canvas import save_all
from smoothcert.report.figures.plots import Curves, Distributions, Panel, Point, Tradeoff, draw_panels
from smoothcert.report.sources import Run, paper_places
from smoothcert.report.symbols import with_symbols
from smoothcert.report.tables.beyond_acr import vote_shares_of
from smoothcert.report.tables.formats import dataset_title
from smoothcert.report.tables.paper_numbers import PAPER_METHODS, method_rank, paper_row
from smoothcert.training.known_methods import method_title
from smoothcert.training.recipes import paper_tables

_SIGMAS = (0.25, 0.5, 1.0)


def write_figures(runs: Sequence[Run], folder: Path, *, paper: bool = False) -> list[Path]:
    """Write all figures for the runs; return the paths. `paper` adds the paper's numbers to the trade-off panels."""
    figures = own_figures(runs) | paper_figures(runs, paper=paper)
    return [path for name, panels in figures.items() for path in save_all(draw_panels(panels), folder / name)]


def own_figures(runs: Sequence[Run]) -> dict[str, list[Panel]]:
    """Return figures of certified accuracy by radius and of the distribution of p_A, per dataset and noise level."""
    figures: dict[str, list[Panel]] = {}
    for dataset, sigma in sorted({run.entry.group for run in runs}):
        members = [run for run in runs if run.entry.group == (dataset, sigma)]
        members.sort(key=lambda run: method_rank(run.entry.method))
        name = f"certified-accuracy-{file_name(dataset or 'unknown')}-{sigma:.2f}"
        titled = {_escape(with_symbols(run.entry.title)): run for run in members}
        title = rf"{_escape(dataset_title(dataset)) if dataset else ''}, $\sigma={sigma:.2f}$"
        figures[name] = [Curves(title, {label: run.entry.results for label, run in titled.items()})]
        shares = {label: vote_shares_of(run) for label, run in titled.items()}
        if known := {label: values for label, values in shares.items() if values is not None}:
            figures[f"p-a-{file_name(dataset or 'unknown')}-{sigma:.2f}"] = [Distributions(title, known)]
    return figures


def paper_figures(runs: Sequence[Run], *, paper: bool = False) -> dict[str, list[Panel]]:
    """Return the paper's figures that the runs have data for, named figure-2 to figure-6."""
    figures: dict[str, list[Panel]] = {
        "figure-2": [*_ablation(runs, "ablation-lambda", r"$\lambda$"), *_ablation(runs, "ablation-m", "$M$")],
        "figure-3": _tradeoff(runs, [2.0], paper),
        "figure-4": _methods(runs, "mnist"),
        "figure-5": _methods(runs, "cifar10"),
        "figure-6": _tradeoff(runs, [None, 1.0, 2.0], paper),
    }
    return {name: panels for name, panels in figures.items() if panels}


def _ablation(runs: Sequence[Run], table: str, symbol: str) -> list[Panel]:
    """Return a panel with one curve per row of an ablation table, if at least two rows have runs."""
    results = {run.recipe: run.entry.results for run in reversed(runs)}
    rows = paper_tables()[table].rows
    curves = {setup.replace("lambda", r"$\lambda$"): results[recipe] for recipe, setup in rows if recipe in results}
    return [Curves(f"effect of {symbol}", curves)] if len(curves) > 1 else []


def _methods(runs: Sequence[Run], dataset: str) -> list[Panel]:
    """Return a panel per noise level, with a curve per method in the paper's main table for `dataset`.

    If a method has several runs at a noise level, the curve shows the first one.
    """
    panels: list[Panel] = []
    for sigma in _SIGMAS:
        members = {
            PAPER_METHODS[run.entry.method]: run.entry.results
            for run in reversed(runs)
            if run.entry.group == (dataset, sigma)
            and run.entry.method in PAPER_METHODS
            and run.recipe not in paper_places()
        }
        ordered = {name: members[name] for name in PAPER_METHODS.values() if name in members}
        panels += [Curves(rf"$\sigma={sigma:.2f}$", ordered)] if ordered else []
    return panels


def _tradeoff(runs: Sequence[Run], radii: Sequence[float | None], paper: bool) -> list[Panel]:
    """Return a panel per radius, with robustness against clean accuracy and a line per method.

    Robustness is ACR where the radius is None. Return no panels unless some method has runs with several settings.
    """
    entries = {run.recipe: run.entry for run in reversed(runs)}
    table = paper_tables()["tradeoff"]
    lines: dict[str, list[Point]] = {}
    for recipe, setup in table.rows:
        if entry := entries.get(recipe):
            printed = paper_row(entry.dataset, entry.sigma, entry.method, table.paper, setup) if paper else None
            symbol, _, value = setup.partition("=")
            name = method_title(entry.method) + (rf", $\{symbol}$" if value else "")
            lines.setdefault(name, []).append(Point(entry.results, value, printed))
    return [Tradeoff(radius, lines) for radius in radii] if any(len(line) > 1 for line in lines.values()) else []


def file_name(text: str) -> str:
    """Return a safe file name: hyphens replace characters that a file system might reject.

    >>> file_name("my data/CAT-RS, lambda=0.25")
    'my-data-CAT-RS-lambda-0.25'
    """
    return re.sub(r"[^\w.-]+", "-", text)


def _escape(text: str) -> str:
    """Escape `$`, and a leading underscore, which would hide a curve from matplotlib's legend."""
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")
