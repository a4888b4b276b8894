"""Mean and standard deviation of ACR over runs that differ in their seed only."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from smoothcert.report.groups import grouped
from smoothcert.report.tables.formats import Annex, Cell, Lines, Sheet, dataset_title
from smoothcert.report.tables.table import TableRow


def seed_annex(rows: Sequence[TableRow], *, several_sets: bool = False) -> Annex:
    """Return a table of means over rows with the same dataset, noise level and name, beside the paper's numbers.

    `+-` is the sample standard deviation.
    """
    titles = ["dataset", "sigma", "method", "seeds", "ACR", "+-", "paper", "+-"]
    lines: Lines = []
    values: list[dict[str, Any]] = []
    for members in grouped(rows, lambda row: (row.entry.group, row.entry.name)):
        entry, paper, acr = members[0].entry, members[0].paper, [row.acr.value for row in members]
        mean, deviation = statistics.fmean(acr), statistics.stdev(acr) if len(acr) > 1 else None
        texts = [dataset_title(entry.dataset), f"{entry.sigma or 0:.2f}", entry.name, str(len(acr))]
        texts += [f"{mean:.4f}", "" if deviation is None else f"{deviation:.4f}"]
        if paper and paper.acr_std is not None:
            texts += [f"{paper.acr:.4f}", f"{paper.acr_std:.4f}"]
        else:  # the paper reports one seed, with three decimals
            texts += [f"{paper.acr:.3f}" if paper else "", ""]
        lines.append([Cell(text) for text in texts])
        about = {"name": entry.name, "dataset": entry.dataset, "sigma": entry.sigma, "seeds": len(acr)}
        printed = {"acr_mean": paper.acr, "acr_deviation": paper.acr_std} if paper else None
        values.append({**about, "acr_mean": mean, "acr_deviation": deviation, "paper": printed})
    table = Sheet(titles, [lines])
    return Annex(table if several_sets else table.without(["dataset"]), values)
