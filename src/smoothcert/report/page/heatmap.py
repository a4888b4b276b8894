"""Accuracy or ACR by kind and severity of corruption, as the page draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from smoothcert.report.corrupted import CorruptedResults
from smoothcert.report.corruptions import KINDS, summarize

Corruptions = Mapping[tuple[str, int], float]


@dataclass(frozen=True)
class HeatMap:
    """A row for each kind of corruption, a column for each severity; None where there is no result."""

    title: str
    kinds: tuple[str, ...]
    severities: tuple[int, ...]
    values: tuple[tuple[float | None, ...], ...]
    means: tuple[float, ...]


def heat_map(title: str, values: Corruptions) -> HeatMap:
    """Arrange results by (kind, severity), kinds in the order they come in; `means` are those of each kind.

    >>> heat_map("accuracy", {("fog", 1): 80.0, ("fog", 2): 60.0, ("snow", 1): 70.0}).values
    ((80.0, 60.0), (70.0, None))
    """
    kinds = tuple(dict.fromkeys(kind for kind, _ in values))
    severities = tuple(sorted({severity for _, severity in values}))
    table = tuple(tuple(values.get((kind, severity)) for severity in severities) for kind in kinds)
    present = [[value for value in row if value is not None] for row in table]
    return HeatMap(title, kinds, severities, table, tuple(sum(row) / len(row) for row in present))


def corruption_maps(entries: Sequence[CorruptedResults]) -> dict[str, Corruptions]:
    """Return ACR and accuracy of every network, by a title: its set's corruptions, then those held out."""
    maps: dict[str, Corruptions] = {}
    for kind, (measure, *_) in KINDS.items():
        for entry in entries:
            cells = summarize(entry, kind).cells
            names, levels = [*entry.corruptions, *entry.held_out], sorted({level for _, level in cells})
            noise = f", sigma {entry.sigma:.2f}" if entry.sigma else ""
            title = f"{measure}: {entry.name}{noise}, {entry.dataset or entry.suite}"
            title += f", n = {entry.n:,}" if title in maps and entry.n else ""
            maps[title] = {
                (name, level): cells[name, level] for name in names for level in levels if (name, level) in cells
            }
    return maps
