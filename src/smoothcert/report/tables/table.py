"""The main table: ACR and certified accuracy by radius, one row per run, best and second best marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from smoothcert.dataset_names import dimensions_of
from smoothcert.errors import UsageError
from smoothcert.report.groups import grouped
from smoothcert.report.tables.entries import Entry
from smoothcert.report.tables.paper_numbers import PaperRow, method_rank, paper_row
from smoothcert.report.tables.protocol import check_comparable, check_same_protocol
from smoothcert.results.sidecar import known_dimensions
from smoothcert.statistics import metrics


@dataclass(frozen=True)
class TableRow:
    """Numbers of one run, with accuracies in percent; `marks` maps a column to "best", "second" or "worse"."""

    entry: Entry
    acr: metrics.Estimate
    accuracy: tuple[float, ...]
    linf: tuple[float, ...]
    paper: PaperRow | None
    difference: metrics.Estimate | None
    marks: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """Rows and the radii of their accuracies; differences in ACR are relative to the entry named `baseline`."""

    rows: tuple[TableRow, ...]
    radii: tuple[float, ...]
    linf: tuple[float, ...]
    baseline: str | None

    @property
    def several_sets(self) -> bool:
        """True if the rows belong to more than one dataset."""
        return len({row.entry.dataset for row in self.rows}) > 1

    def groups(self) -> list[list[TableRow]]:
        """Return the rows grouped by dataset, noise level and images."""
        return grouped(self.rows, lambda row: (row.entry.group, row.entry.image_set))


def build_table(
    entries: Sequence[Entry],
    *,
    radii: Sequence[float] | None = None,
    linf: Sequence[float] = (),
    baseline: str | None = None,
    paper: bool = False,
    gray: bool = False,
) -> Table:
    """Return a table of runs, sorted by dataset, noise level, images (most first) and method (as in the paper).

    Args:
        entries: The runs, as returned by `describe`.
        radii: l2 radii of the accuracy columns. Default: the paper's radii for the dataset; for several datasets, the
            longest of these lists.
        linf: l_inf radii of further accuracy columns.
        baseline: Name or method of the entry with which other entries are compared in ACR, on shared images.
        paper: Attach the paper's numbers to the rows.
        gray: Mark accuracies below those of a comparable Gaussian run, see `_mark_worse`.

    Raises:
        UsageError: If the radii are invalid, or the entries cannot be compared.
    """
    grids = {tuple(metrics.radius_grid(entry.dataset)) for entry in entries}
    if radii is not None and not all(0 <= radius < math.inf for radius in radii):
        raise UsageError(f"Expected `radii` to be finite numbers >= 0, but got {' '.join(map(str, radii))}.")
    grid = tuple(radii) if radii is not None else max(grids, key=len)
    ranked = sorted(entries, key=lambda one: (one.group, -len(one.results), one.image_set, method_rank(one.method)))
    check_comparable(ranked, linf=bool(linf), paper=paper)
    rows = tuple(_build_row(entry, grid, linf, _find_baseline(ranked, baseline, entry), paper) for entry in ranked)
    for rivals in grouped(rows, lambda row: row.entry.rivals):
        _mark_rows(rivals)
        if gray:
            _mark_worse(rivals)
    return Table(rows, grid, tuple(linf), baseline)


def _build_row(
    entry: Entry, radii: Sequence[float], linf: Sequence[float], baseline: Entry | None, paper: bool
) -> TableRow:
    results = entry.results
    linf_accuracy: tuple[float, ...] = ()
    if linf:
        dimensions = known_dimensions(entry.settings) or dimensions_of(entry.dataset)
        if dimensions is None:
            raise UsageError(f"`linf` needs the image size of {entry.name}; name its dataset with `dataset`.")
        linf_accuracy = tuple(100 * metrics.linf_accuracy(results.radius, results.correct, linf, dimensions))
    pair = [(one.idx, one.radius, one.correct) for one in (results, baseline.results)] if baseline else []
    return TableRow(
        entry=entry,
        acr=metrics.estimate(metrics.robust_radius(results.radius, results.correct)),
        accuracy=tuple(100 * metrics.certified_accuracy(results.radius, results.correct, radii)),
        linf=linf_accuracy,
        paper=paper_row(entry.dataset, entry.sigma, entry.method, *entry.paper) if paper else None,
        difference=metrics.paired_difference(*pair) if pair else None,
    )


def _find_baseline(entries: Sequence[Entry], baseline: str | None, entry: Entry) -> Entry | None:
    """Return the baseline of the entry's dataset and noise level; None if there is none or `entry` is the baseline."""
    if baseline is None:
        return None
    names = [(other.name, other.name.partition(" [")[0], other.method, other.results.name) for other in entries]
    matching = [other for other, known in zip(entries, names, strict=True) if baseline in known]
    if not matching:
        raise UsageError(f"Unknown baseline {baseline!r}; known: {', '.join(e.name for e in entries)}.")
    same = next((other for other in matching if other.group == entry.group), None)
    if same is None or same is entry:
        return None
    check_same_protocol(entry, same)
    return same


def _mark_rows(rows: Sequence[TableRow]) -> None:
    columns = {"acr": [round(row.acr.value, 3) for row in rows]}
    columns |= {f"r{i}": [round(row.accuracy[i], 1) for row in rows] for i in range(len(rows[0].accuracy))}
    columns |= {f"linf{i}": [round(row.linf[i], 1) for row in rows] for i in range(len(rows[0].linf))}
    for key, values in columns.items():
        for row, mark in zip(rows, rank_marks(values), strict=True):
            if mark:
                row.marks[key] = mark


def _mark_worse(rows: Sequence[TableRow]) -> None:
    """Mark the accuracies of each row that are lower than those of a comparable Gaussian run.

    This is the most expensive Gaussian run that costs no more than the row; if there is none, the cheapest.
    """
    gaussians = sorted((row for row in rows if row.entry.method == "gaussian"), key=lambda row: row.entry.cost or 0.0)
    for row in rows:
        affordable = [other for other in gaussians if (other.entry.cost or 0.0) <= (row.entry.cost or math.inf)]
        reference = (affordable or gaussians[:1])[-1:]
        for i, value in enumerate(row.accuracy):
            if reference and round(value, 1) < round(reference[0].accuracy[i], 1):
                row.marks[f"r{i}"] = "worse"


def rank_marks(values: Sequence[float | None]) -> list[str]:
    """Mark the best and second best of several printed values; ties share a mark, zeros and None get none.

    >>> rank_marks([0.5, 0.7, None, 0.7, 0.0])
    ['second', 'best', '', 'best', '']
    """
    ranking = sorted({value for value in values if value}, reverse=True)
    names = dict(zip(ranking, ("best", "second"), strict=False)) if len(values) > 1 else {}
    return [names.get(value, "") if value else "" for value in values]


def to_json(table: Table) -> list[dict[str, Any]]:
    """Return the table as JSON-compatible values, with standard errors and high-probability bounds."""
    return [_row_json(row, table) for row in table.rows]


def _row_json(row: TableRow, table: Table) -> dict[str, Any]:
    results, alpha = row.entry.results, row.entry.alpha or 0.001
    bound = metrics.high_probability_accuracy([value / 100 for value in row.accuracy], len(results), alpha)
    errors = [math.sqrt(value * (100 - value) / len(results)) for value in row.accuracy]
    return {
        **{key: getattr(row.entry, key) for key in ("name", "title", "dataset", "sigma", "method", "seed")},
        "images": len(results),
        **{key: getattr(row.entry, key) for key in ("n", "alpha", "protocol")},
        "acr": _estimate_json(row.acr),
        "radii": list(table.radii),
        "certified_accuracy": list(row.accuracy),
        "certified_accuracy_standard_error": errors,
        "certified_accuracy_high_probability": [100 * float(value) for value in bound],
        "abstention": 100 * metrics.abstention_rate(results.predict),
        "linf": {f"{epsilon:.6g}": value for epsilon, value in zip(table.linf, row.linf, strict=True)},
        "acr_difference": _estimate_json(row.difference) if row.difference else None,
        "paper": {"acr": row.paper.acr, "certified_accuracy": {f"{r:g}": a for r, a in row.paper.accuracy.items()}}
        if row.paper
        else None,
        "seconds_per_image": float(results.seconds.mean()),
    }


def _estimate_json(estimate: metrics.Estimate) -> dict[str, float | None]:
    """Return an estimate as JSON values; NaN, the standard error of a single image, becomes None."""
    return {key: None if math.isnan(value) else value for key, value in vars(estimate).items()}
