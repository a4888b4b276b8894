"""Which figures a set of runs gives: one for each data set and noise level, and the paper's own by their numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from smoothcert.dataset_names import TITLES
from smoothcert.report.figures.plots import Curves, Panel, Point, Tradeoff, write_figure
from smoothcert.report.sources import Run, paper_places, recipe_of
from smoothcert.report.tables.paper_numbers import METHODS, paper_row
from smoothcert.training.recipes import paper_tables

_NOISES = (0.25, 0.5, 1.0)


def write_figures(runs: Sequence[Run], folder: Path, *, paper: bool = False) -> list[Path]:
    """Write every figure the runs give into a folder, as PDF, SVG and PNG; `paper` adds its numbers to trade-offs."""
    panels = own_figures(runs) | paper_figures(runs, paper=paper)
    return [path for name, drawn in panels.items() for path in write_figure(drawn, folder / name)]


def own_figures(runs: Sequence[Run]) -> dict[str, list[Panel]]:
    """Return certified accuracy against radius, a figure for each data set and noise level."""
    found: dict[str, list[Panel]] = {}
    for dataset, sigma in sorted({run.entry.group for run in runs}):
        members = sorted((run for run in runs if run.entry.group == (dataset, sigma)), key=_rank)
        name = f"certified-accuracy-{file_name(dataset or 'unknown')}-{sigma:.2f}"
        curves = {_plain(run.entry.title): run.entry.results for run in members}
        found[name] = [Curves(rf"{_plain(TITLES.get(dataset, dataset))}, $\sigma={sigma:.2f}$", curves)]
    return found


def paper_figures(runs: Sequence[Run], *, paper: bool = False) -> dict[str, list[Panel]]:
    """Return the paper's figures 2 to 6 as far as the runs give them, by the names figure-2 and so on."""
    found: dict[str, list[Panel]] = {
        "figure-2": [*_ablation(runs, "ablation-lambda", r"$\lambda$"), *_ablation(runs, "ablation-m", "$M$")],
        "figure-3": _tradeoff(runs, [2.0], paper),
        "figure-4": _main(runs, "mnist"),
        "figure-5": _main(runs, "cifar10"),
        "figure-6": _tradeoff(runs, [None, 1.0, 2.0], paper),
    }
    return {name: panels for name, panels in found.items() if panels}


def _ablation(runs: Sequence[Run], table: str, symbol: str) -> list[Panel]:
    """Return a curve for each row of an ablation's table, where there are two to compare."""
    made = {recipe_of(run): run.entry.results for run in reversed(runs)}
    rows = paper_tables()[table].rows
    curves = {setup.replace("lambda", r"$\lambda$"): made[recipe] for recipe, setup in rows if recipe in made}
    return [Curves(f"effect of {symbol}", curves)] if len(curves) > 1 else []


def _main(runs: Sequence[Run], dataset: str) -> list[Panel]:
    """Return the methods' curves at each noise level of a main table; of several seeds the first."""
    panels: list[Panel] = []
    for sigma in _NOISES:
        members = {
            METHODS[run.entry.method]: run.entry.results
            for run in reversed(runs)
            if run.entry.group == (dataset, sigma) and run.entry.method and recipe_of(run) not in paper_places()
        }
        ordered = {name: members[name] for name in METHODS.values() if name in members}
        panels += [Curves(rf"$\sigma={sigma:.2f}$", ordered)] if ordered else []
    return panels


def _tradeoff(runs: Sequence[Run], radii: Sequence[float | None], paper: bool) -> list[Panel]:
    """Return clean accuracy against robustness over each method's setting, where one has two to join."""
    made = {recipe_of(run): run.entry for run in reversed(runs)}
    table = paper_tables()["tradeoff"]
    lines: dict[str, list[Point]] = {}
    for recipe, setup in table.rows:
        if entry := made.get(recipe):
            theirs = paper_row(entry.dataset, entry.sigma, entry.method, table.paper, setup) if paper else None
            symbol, _, value = setup.partition("=")
            name = METHODS[entry.method or ""] + (rf", $\{symbol}$" if value else "")
            lines.setdefault(name, []).append(Point(entry.results, value, theirs))
    return [Tradeoff(radius, lines) for radius in radii] if any(len(line) > 1 for line in lines.values()) else []


def _rank(run: Run) -> int:
    """Return a run's place in the paper's order of methods."""
    return list(METHODS).index(run.entry.method) if run.entry.method else len(METHODS)


def file_name(text: str) -> str:
    """Make a name that any file system takes.

    >>> file_name("my data/CAT-RS, lambda=0.25")
    'my-data-CAT-RS-lambda-0.25'
    """
    return re.sub(r"[^\w.-]+", "-", text)


def _plain(text: str) -> str:
    """Keep matplotlib from reading a name as mathematics, or from leaving it out of a legend for its underscore."""
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")
