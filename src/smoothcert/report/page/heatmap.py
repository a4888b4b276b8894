"""Accuracy or ACR by kind of corruption, and by its severity or by network, as the page draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from smoothcert.report.corrupted.network_results import CorruptedResults
from smoothcert.report.corrupted.summary import (
    KINDS,
    Summary,
    corruption_groups,
    paper_beside,
    same_images,
    summarize,
)
from smoothcert.report.tables.paper_numbers import METHODS

Corruptions = Mapping[tuple[str, int | str], float]
"""Results by (kind, severity) or, where there are no severities, by (kind, network)."""


@dataclass(frozen=True)
class HeatMap:
    """A row for each kind of corruption, a column for each severity or network; None where there is no result.

    `means` are those of each kind over several severities.
    """

    title: str
    kinds: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    means: tuple[float, ...]


def heat_map(title: str, results: Corruptions) -> HeatMap:
    """Arrange results, kinds and networks in the order they come in, severities by number.

    >>> heat_map("accuracy", {("fog", 1): 80.0, ("fog", 2): 60.0, ("snow", 1): 70.0}).values
    ((80.0, 60.0), (70.0, None))
    """
    kinds = tuple(dict.fromkeys(kind for kind, _ in results))
    severities = sorted({column for _, column in results if isinstance(column, int)})
    columns: list[int | str] = [*severities] or list(dict.fromkeys(column for _, column in results))
    values = tuple(tuple(results.get((kind, column)) for column in columns) for kind in kinds)
    present = [[value for value in row if value is not None] for row in values] if len(severities) > 1 else []
    names = tuple(f"severity {column}" if severities else str(column) for column in columns)
    return HeatMap(title, kinds, names, values, tuple(sum(row) / len(row) for row in present))


def corruption_maps(entries: Sequence[CorruptedResults]) -> Mapping[str, Corruptions]:
    """Return ACR and accuracy by a title: of each network by severity, or of all networks where there is but one.

    Kinds are the set's, in its order, then those held out.
    """
    maps: dict[str, dict[tuple[str, int | str], float]] = {}
    order = [*METHODS, None]
    uneven = {id(entry) for group in corruption_groups(entries) if not same_images(group) for entry in group}
    for kind, (measure, *_) in KINDS.items():
        for entry in sorted(entries, key=lambda entry: order.index(entry.method)):
            summary = summarize(entry, kind)
            together = entry.suite == "mnist-c" and {level for _, level in entry.parts} == {1}
            name = entry.name + (f", {len(entry.images):,} images" if id(entry) in uneven else "")
            printed = paper_beside(entry, kind).get("mean") if not entry.missing else None
            results = _by_network(entry, summary, name, printed) if together else _by_severity(entry, summary)
            about = [] if together else [entry.name]
            about += [f"sigma {entry.sigma:.2f}"] if entry.sigma else []
            title = f"{measure}: {', '.join([*about, entry.dataset or entry.suite])}"
            title += f", n = {entry.n:,}" if entry.n and (together or title in maps) else ""
            maps.setdefault(title, {}).update(results)
    return maps


def _by_severity(entry: CorruptedResults, summary: Summary) -> Corruptions:
    names = [*entry.corruptions, *entry.held_out]
    return {cell: summary.cells[cell] for cell in sorted(summary.cells, key=lambda cell: names.index(cell[0]))}


def _by_network(entry: CorruptedResults, summary: Summary, column: str, printed: float | None) -> Corruptions:
    """Return its column of a map, the mean below the corruptions it is of, and what the paper prints of that."""
    means = [("mean", summary.mean.value)] + ([] if printed is None else [("mean in the paper", printed)])
    rows = [(name, summary.by_corruption[name]) for name in (*entry.corruptions, *entry.held_out)]
    rows[len(entry.corruptions) : len(entry.corruptions)] = means
    return {(name, column): value for name, value in rows}
