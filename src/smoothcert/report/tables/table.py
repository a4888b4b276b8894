"""The paper's table of several results: one row each, grouped by data set and noise level."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from smoothcert.dataset_names import dimensions_of
from smoothcert.errors import UsageError
from smoothcert.report.tables.paper_numbers import ALIASES, METHODS, PaperRow, paper_row
from smoothcert.report.tables.protocol import check_comparable, check_same_protocol, protocol_of
from smoothcert.results.records import Results
from smoothcert.statistics import metrics
from smoothcert.statistics.bounds import largest_radius


@dataclass(frozen=True)
class Entry:
    """Results with what the table needs to know of them."""

    results: Results
    name: str
    dataset: str | None
    sigma: float | None
    method: str | None
    n: int | None
    alpha: float | None
    protocol: str = ""  # what sets it apart from CERTIFY as published
    paper: tuple[str | None, str] = (None, "")  # its table in the paper, where not the main one, and its setup there
    seed: int | None = None  # where a table is over seeds
    apart: str = ""  # what tells it from others of its name, data set and noise level

    @property
    def group(self) -> tuple[str, float]:
        """Rows of one group stand together: data set and noise level (0 where not known)."""
        return (self.dataset or "", self.sigma or 0.0)

    @property
    def rivals(self) -> tuple[str, float, str]:
        """Rows that share these are compared with each other, if they are on the same images."""
        return (*self.group, self.protocol)

    @property
    def title(self) -> str:
        """The name of its row."""
        if self.seed is not None:
            return f"{self.name}, seed {self.seed}"
        return f"{self.name} ({self.apart})" if self.apart else self.name


@dataclass(frozen=True)
class Row:
    """One line of the table, accuracies in percent."""

    entry: Entry
    acr: metrics.Estimate
    accuracy: tuple[float, ...]
    linf: tuple[float, ...]
    paper: PaperRow | None
    difference: metrics.Estimate | None
    marks: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """Rows with their radii; `marks` of each row say which of its cells are best or second among its rivals."""

    rows: tuple[Row, ...]
    radii: tuple[float, ...]
    linf: tuple[float, ...]
    baseline: str | None

    @property
    def several_sets(self) -> bool:
        """Whether a row must say of which data set it is."""
        return len({row.entry.dataset for row in self.rows}) > 1

    def rivals(self) -> list[list[Row]]:
        """The rows, one list for each data set, noise level and protocol."""
        keys = dict.fromkeys(row.entry.rivals for row in self.rows)
        return [[row for row in self.rows if row.entry.rivals == key] for key in keys]

    def groups(self) -> list[list[Row]]:
        """The rows, one list for each data set and noise level."""
        keys = sorted({row.entry.group for row in self.rows})
        return [[row for row in self.rows if row.entry.group == key] for key in keys]


def describe(results: Results, name: str | None = None, **given: Any) -> Entry:
    """Find out what a results file holds: from its sidecar, from what the user says, or from its name.

    Files without a sidecar are published ones; their names, METHOD-SIGMA.tsv, say the rest.
    """
    settings = results.about.get("settings", {})
    told = re.fullmatch(r"(?P<method>.+)-(?P<sigma>\d+(\.\d+)?)", results.name)
    sigma = settings.get("sigma") or given.get("sigma") or (float(told["sigma"]) if told else None)
    if not settings and sigma and results.radius.max() > largest_radius(sigma, 10**7, 0.001) * 1.01:
        sigma = given.get("sigma")  # a number in the name that cannot be the noise level of such radii
    method = settings.get("model", {}).get("method") or (told["method"] if told else results.name)
    method = ALIASES.get(method.lower(), method.lower())
    protocol = protocol_of(settings)
    called = name or METHODS.get(method, results.name)
    return Entry(
        results=results,
        name=f"{called} [{protocol}]" if protocol else called,
        dataset=settings.get("data", {}).get("name") or given.get("dataset"),
        sigma=sigma,
        method=method if method in METHODS else None,
        n=settings.get("n"),
        alpha=settings.get("alpha"),
        protocol=protocol,
    )


def build_table(
    entries: Sequence[Entry],
    *,
    radii: Sequence[float] | None = None,
    linf: Sequence[float] = (),
    baseline: str | None = None,
    paper: bool = False,
) -> Table:
    """Make the table of several results, in the paper's order of methods, with best and second marked."""
    grids = {tuple(metrics.radius_grid(entry.dataset)) for entry in entries}
    if radii is not None and not all(0 <= radius < math.inf for radius in radii):
        raise UsageError(f"Expected `--radii` to be numbers of at least 0, but got {' '.join(map(str, radii))}.")
    grid = tuple(radii) if radii is not None else max(grids, key=len)
    order = list(METHODS)
    ranked = sorted(entries, key=lambda e: (e.group, order.index(e.method) if e.method else len(order)))
    check_comparable(ranked, linf=bool(linf), paper=paper)
    rows = tuple(_row(entry, grid, linf, _find(ranked, baseline, entry), paper) for entry in ranked)
    table = Table(rows, grid, tuple(linf), baseline)
    for members in table.rivals():
        if on_same_images(members):
            _mark(members)
    return table


def _row(entry: Entry, radii: Sequence[float], linf: Sequence[float], base: Entry | None, paper: bool) -> Row:
    results = entry.results
    accuracy = metrics.certified_accuracy(results.radius, results.correct, radii)
    cube: tuple[float, ...] = ()
    if linf:
        made = results.about.get("settings", {}).get("data", {})
        dimensions = made.get("dimensions") or dimensions_of(entry.dataset)
        if dimensions is None:
            raise UsageError(f"{entry.name}: name its data set with `--dataset`, for the dimensions l_inf needs.")
        cube = tuple(100 * metrics.linf_accuracy(results.radius, results.correct, linf, dimensions))
    return Row(
        entry=entry,
        acr=metrics.estimate(metrics.robust_radius(results.radius, results.correct)),
        accuracy=tuple(100 * accuracy),
        linf=cube,
        paper=paper_row(entry.dataset, entry.sigma, entry.method, *entry.paper) if paper else None,
        difference=metrics.paired_difference(_columns(results), _columns(base.results)) if base else None,
    )


def _columns(results: Results) -> tuple[Any, Any, Any]:
    return results.idx, results.radius, results.correct


def _find(entries: Sequence[Entry], baseline: str | None, entry: Entry) -> Entry | None:
    if baseline is None:
        return None
    names = [(other.name, other.name.partition(" [")[0], other.method, other.results.name) for other in entries]
    wanted = [other for other, known in zip(entries, names, strict=True) if baseline in known]
    if not wanted:
        raise UsageError(f"No result is called {baseline!r}; there are {', '.join(e.name for e in entries)}.")
    same = next((other for other in wanted if other.group == entry.group), None)
    if same is None or same is entry:
        return None
    check_same_protocol(entry, same)
    return same


def on_same_images(rows: Sequence[Row]) -> bool:
    """Whether all rows are of the same images, so that one can be called better than another."""
    return len({np.sort(row.entry.results.idx).tobytes() for row in rows}) == 1


def _mark(group: Sequence[Row]) -> None:
    """Mark the best and the second value of each column as they are printed; ties share a mark."""
    if len(group) < 2:
        return
    columns = {"acr": [round(row.acr.value, 3) for row in group]}
    columns |= {f"r{i}": [round(row.accuracy[i], 1) for row in group] for i in range(len(group[0].accuracy))}
    columns |= {f"linf{i}": [round(row.linf[i], 1) for row in group] for i in range(len(group[0].linf))}
    for key, values in columns.items():
        ranking = sorted({value for value in values if value > 0}, reverse=True)
        for row, value in zip(group, values, strict=True):
            if value in ranking[:2]:
                row.marks[key] = "best" if value == ranking[0] else "second"


def to_json(table: Table) -> list[dict[str, Any]]:
    """Return everything the table rests on, as plain values."""
    return [_row_json(row, table) for row in table.rows]


def _row_json(row: Row, table: Table) -> dict[str, Any]:
    results, alpha = row.entry.results, row.entry.alpha or 0.001
    bound = metrics.high_probability_accuracy([value / 100 for value in row.accuracy], len(results), alpha)
    errors = [math.sqrt(value * (100 - value) / len(results)) for value in row.accuracy]
    return {
        "name": row.entry.name,
        "title": row.entry.title,
        "dataset": row.entry.dataset,
        "sigma": row.entry.sigma,
        "method": row.entry.method,
        "seed": row.entry.seed,
        "images": len(results),
        "n": row.entry.n,
        "alpha": row.entry.alpha,
        "protocol": row.entry.protocol,
        "acr": _numbers(row.acr),
        "radii": list(table.radii),
        "certified_accuracy": list(row.accuracy),
        "certified_accuracy_standard_error": errors,
        "certified_accuracy_high_probability": [100 * float(value) for value in bound],
        "abstention": 100 * metrics.abstention_rate(results.predict),
        "linf": {f"{epsilon:.6g}": value for epsilon, value in zip(table.linf, row.linf, strict=True)},
        "acr_difference": _numbers(row.difference) if row.difference else None,
        "paper": {"acr": row.paper.acr, "certified_accuracy": {f"{r:g}": a for r, a in row.paper.accuracy.items()}}
        if row.paper
        else None,
        "seconds_per_image": float(results.seconds.mean()),
    }


def _numbers(estimate: metrics.Estimate) -> dict[str, float | None]:
    """Return an estimate for JSON, which has no NaN: one image has no standard error."""
    return {key: None if math.isnan(value) else value for key, value in vars(estimate).items()}
