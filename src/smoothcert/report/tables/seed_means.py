"""Mean and standard deviation of ACR over runs that differ in their seed only."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from smoothcert.report.tables.formats import Annex, Cell, Sheet, dataset_title
from smoothcert.report.tables.paper_numbers import PaperRow
from smoothcert.report.tables.table import TableRow


@dataclass(frozen=True)
class SeedRow:
    """ACR of one method at one noise level over several seeds; `deviation` is the sample standard deviation."""

    name: str
    dataset: str | None
    sigma: float | None
    seeds: int
    mean: float
    deviation: float | None
    paper: PaperRow | None


def over_seeds(rows: Sequence[TableRow]) -> list[SeedRow]:
    """Average the rows that share a dataset, noise level and name."""
    seeds: dict[tuple[Any, str], list[TableRow]] = {}  # not groupby: rows of two settings may alternate
    for row in rows:
        seeds.setdefault((row.entry.group, row.entry.name), []).append(row)
    averaged = []
    for (_, name), members in seeds.items():
        values = [row.acr.value for row in members]
        deviation = statistics.stdev(values) if len(values) > 1 else None
        entry, mean = members[0].entry, statistics.fmean(values)
        averaged.append(SeedRow(name, entry.dataset, entry.sigma, len(values), mean, deviation, members[0].paper))
    return averaged


def seed_annex(rows: Sequence[SeedRow], *, several_sets: bool = False) -> Annex:
    """Return the averages as a table, with the paper's numbers in its last columns."""
    titles = [*(["dataset"] if several_sets else []), "sigma", "method", "seeds", "ACR", "+-", "paper", "+-"]
    lines = [_cells(row)[not several_sets :] for row in rows]
    return Annex(Sheet(titles, [lines]), [_to_json(row) for row in rows])


def _cells(row: SeedRow) -> list[Cell]:
    deviation = "" if row.deviation is None else f"{row.deviation:.4f}"
    texts = [dataset_title(row.dataset), f"{row.sigma or 0:.2f}", row.name, str(row.seeds)]
    texts += [f"{row.mean:.4f}", deviation]
    if row.paper and row.paper.acr_std is not None:
        texts += [f"{row.paper.acr:.4f}", f"{row.paper.acr_std:.4f}"]
    else:  # the paper reports one seed, with three decimals
        texts += [f"{row.paper.acr:.3f}" if row.paper else "", ""]
    return [Cell(text) for text in texts]


def _to_json(row: SeedRow) -> dict[str, Any]:
    paper = {"acr_mean": row.paper.acr, "acr_deviation": row.paper.acr_std} if row.paper else None
    about = {"name": row.name, "dataset": row.dataset, "sigma": row.sigma, "seeds": row.seeds}
    return {**about, "acr_mean": row.mean, "acr_deviation": row.deviation, "paper": paper}
