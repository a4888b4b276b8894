"""Several seeds of one row: mean and standard deviation of ACR."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from smoothcert.report.paper import PaperRow
from smoothcert.report.table import Row


@dataclass(frozen=True)
class SeedRow:
    """One method at one noise level over several seeds; the deviation is that of the seeds' ACRs (n - 1)."""

    name: str
    sigma: float | None
    seeds: int
    mean: float
    deviation: float | None
    paper: PaperRow | None


def over_seeds(rows: Sequence[Row]) -> list[SeedRow]:
    """Put the rows of one data set, noise level and name together."""
    found = []
    for (_, name), same in groupby(rows, key=lambda row: (row.entry.group, row.entry.name)):
        members = list(same)
        values = [row.acr.value for row in members]
        deviation = statistics.stdev(values) if len(values) > 1 else None
        entry = members[0]
        found.append(SeedRow(name, entry.entry.sigma, len(values), statistics.fmean(values), deviation, entry.paper))
    return found


def to_seed_text(rows: Sequence[SeedRow]) -> str:
    """Return the summary as plain text, the paper's numbers beside ours."""
    lines = [f"{'sigma':>5}  {'method':24} {'seeds':>5}  {'ACR':>6} {'+-':>7}  {'paper':>7} {'+-':>7}"]
    for row in rows:
        ours = f"{row.mean:6.4f} {'' if row.deviation is None else f'{row.deviation:.4f}':>7}"
        theirs = f"{row.paper.acr:7.4f} {row.paper.acr_std or 0:7.4f}" if row.paper else ""
        lines.append(f"{row.sigma or 0:5.2f}  {row.name:24} {row.seeds:5}  {ours}  {theirs}".rstrip())
    return "\n" + "\n".join(lines) + "\n"
