"""Heat maps of the report page: ACR or accuracy by corruption, and by severity or network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from smoothcert.report.corrupted.means import KINDS, Summary, summarize
from smoothcert.report.corrupted.results import CorruptedResults, corruption_groups, on_shared_images, same_images
from smoothcert.report.corrupted.tables import paper_values
from smoothcert.report.page.phrases import at_sigma
from smoothcert.report.tables.paper_numbers import method_rank

HeatMapValues = Mapping[tuple[str, int | str], float]
"""Values by (corruption, severity) or, if there is a single severity, by (corruption, network)."""


def heat_map(title: str, results: HeatMapValues) -> dict[str, Any]:
    """Arrange values in rows of corruptions and columns of severities (sorted) or networks (in the given order).

    `means` contains each row's mean over severities; it is empty unless there are several severities.

    >>> heat_map("accuracy", {("fog", 1): 80.0, ("fog", 2): 60.0, ("snow", 1): 70.0})["values"]
    [[80.0, 60.0], [70.0, None]]
    """
    kinds = list(dict.fromkeys(kind for kind, _ in results))
    severities = sorted({column for _, column in results if isinstance(column, int)})
    columns: list[int | str] = [*severities] or list(dict.fromkeys(column for _, column in results))
    values = [[results.get((kind, column)) for column in columns] for kind in kinds]
    present = [[value for value in row if value is not None] for row in values] if len(severities) > 1 else []
    names = [f"severity {column}" if severities else str(column) for column in columns]
    means = [sum(row) / len(row) for row in present]
    return {"title": title, "kinds": kinds, "columns": names, "values": values, "means": means}


def corruption_maps(entries: Sequence[CorruptedResults]) -> Mapping[str, HeatMapValues]:
    """Return heat maps of each measure by title: one per network, or a joint one for networks with a single severity.

    A joint map shows results on the images that its networks share; if there are none, its columns name the numbers of
    images.
    """
    maps: dict[str, dict[tuple[str, int | str], float]] = {}
    columns = sorted(_columns(entries), key=lambda column: method_rank(column[0].method))
    for kind, (measure, *_) in KINDS.items():
        for entry, name, note in columns:
            summary = summarize(entry, kind)
            together = _one_severity(entry)
            printed = paper_values(entry, kind).get("mean") if not entry.missing else None
            results = _by_network(entry, summary, name, printed) if together else _by_severity(summary)
            about = ["" if together else entry.name, at_sigma([entry.sigma]), entry.dataset or entry.suite]
            title = f"{measure}: {', '.join(filter(None, about))}"
            title += f", n = {entry.n:,}" if entry.n and (together or title in maps) else ""
            title += note
            maps.setdefault(title, {}).update(results)
    return maps


def _one_severity(entry: CorruptedResults) -> bool:
    return {level for _, level in entry.parts} == {1}


def _columns(entries: Sequence[CorruptedResults]) -> Iterator[tuple[CorruptedResults, str, str]]:
    """Yield each network, on the images of its joint map, with its column title and a suffix for its map's title."""
    for group in corruption_groups(entries):
        together = [entry for entry in group if _one_severity(entry)]
        shared = on_shared_images(together)
        cut = not same_images(together)
        even = cut and same_images(shared)
        note = f", {len(shared[0].images):,} shared images" if even else ""
        for entry in shared:
            yield entry, entry.name + (f", {len(entry.images):,} images" if cut and not even else ""), note
        yield from ((entry, entry.name, "") for entry in group if not _one_severity(entry))


def _by_severity(summary: Summary) -> HeatMapValues:
    names = list(summary.by_corruption)
    return {cell: summary.cells[cell] for cell in sorted(summary.cells, key=lambda cell: names.index(cell[0]))}


def _by_network(entry: CorruptedResults, summary: Summary, column: str, printed: float | None) -> HeatMapValues:
    """Return a network's column: corruptions that count toward the mean, then the mean, then other corruptions."""
    rows, count = list(summary.by_corruption.items()), len(entry.corruptions)
    means = [("mean", summary.mean.value)] + ([] if printed is None else [("mean (paper)", printed)])
    return {(name, column): value for name, value in [*rows[:count], *means, *rows[count:]]}
