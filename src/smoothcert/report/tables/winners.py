"""The best rows of a table: by ACR at each noise level, and by certified accuracy at each radius."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from smoothcert.report.groups import grouped
from smoothcert.report.tables.paired import paired_accuracy_gap, paired_gap
from smoothcert.report.tables.table import Table, TableRow
from smoothcert.statistics.metrics import Estimate


@dataclass(frozen=True)
class Lead:
    """The row with the largest ACR at a noise level; `ahead` is its paired lead over `second`."""

    first: TableRow
    second: TableRow | None  # the best row of another method
    ahead: Estimate | None
    clean: TableRow  # the row with the highest clean accuracy
    cleaner: Estimate | None  # its paired lead in clean accuracy over `first`, as a share

    @property
    def significant(self) -> bool:
        """True if the interval of the lead excludes 0."""
        return self.ahead is not None and self.ahead.low > 0

    @property
    def costs_accuracy(self) -> bool:
        """True if another row has a significantly higher clean accuracy than `first`."""
        return self.cleaner is not None and self.cleaner.low > 0


@dataclass(frozen=True)
class BestAt:
    """The row with the highest certified accuracy at a radius, and the best row of another method."""

    radius: float
    first: TableRow
    second: TableRow | None
    accuracy: float
    second_accuracy: float | None


def comparable_rows(table: Table, dataset: str | None) -> list[TableRow]:
    """Return the largest set of a dataset's rows that have the same images and protocol."""
    rows = [row for row in table.rows if row.entry.dataset == dataset]
    groups = grouped(rows, lambda row: (row.entry.protocol, row.entry.image_set))
    return max(groups, key=lambda members: (len(members), len(members[0].entry.image_set)))


def leads_by_sigma(rows: Sequence[TableRow]) -> list[Lead]:
    """Return the lead at each noise level, from the lowest to the highest level."""
    leads = []
    for sigma in sorted({row.entry.sigma or 0.0 for row in rows}):
        members = [row for row in rows if (row.entry.sigma or 0.0) == sigma]
        first = max(members, key=lambda row: row.acr.value)
        second = _best_other(members, first, lambda row: row.acr.value)
        ahead = paired_gap(first.entry, second.entry) if second else None
        clean = max(members, key=clean_accuracy)
        leads.append(Lead(first, second, ahead, clean, paired_accuracy_gap(clean.entry, first.entry)))
    return leads


def best_by_radius(rows: Sequence[TableRow], radii: Sequence[float]) -> list[BestAt]:
    """Return, for each radius at which an image is certified, the best row at any noise level."""
    best = (_best_at(rows, number, radius) for number, radius in enumerate(radii))
    return [at for at in best if at.accuracy > 0]


def _best_at(rows: Sequence[TableRow], number: int, radius: float) -> BestAt:
    def accuracy(row: TableRow) -> float:
        return row.accuracy[number]

    first = max(rows, key=accuracy)
    second = _best_other(rows, first, accuracy)
    return BestAt(radius, first, second, accuracy(first), accuracy(second) if second else None)


def clean_accuracy(row: TableRow) -> float:
    """Return the share of images that a row classifies correctly, in percent."""
    return 100 * float(row.entry.results.correct.mean())


def method_name(row: TableRow) -> str:
    """Return the method of a row, or the row's name if its method is unknown."""
    return row.entry.method or row.entry.name


def _best_other(rows: Sequence[TableRow], first: TableRow, key: Callable[[TableRow], float]) -> TableRow | None:
    others = [row for row in rows if method_name(row) != method_name(first)]
    return max(others, key=key) if others else None
