"""The numbers printed in the paper's tables, to set beside ours.

`paper.csv` holds the figures of "Confidence-aware Training of Smoothed Classifiers for Certified Robustness" (Jeong,
Kim and Shin, AAAI 2023), one number a line.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MAIN_TABLES = {
    "mnist": "tab:mnist",
    "fashion_mnist": "tab:FMNIST",
    "cifar10": "tab:cifar10",
    "cifar100": "tab:cifar100",
    "imagenet": "tab:imagenet",
}
METHODS = {
    "gaussian": "Gaussian",
    "stability": "Stability",
    "smoothadv": "SmoothAdv",
    "macer": "MACER",
    "consistency": "Consistency",
    "smoothmix": "SmoothMix",
    "catrs": "CAT-RS",
}
"""The paper's methods in the order of its tables, with the names they bear there."""

ALIASES = {"cat-rs": "catrs", "cohen": "gaussian", "salman": "smoothadv", "stab": "stability"}
"""Names under which published result files know some of the methods."""


@dataclass(frozen=True)
class PaperRow:
    """A row of a table as printed: ACR, and certified accuracy in percent by radius."""

    acr: float
    accuracy: Mapping[float, float]


@cache
def paper_numbers() -> tuple[dict[str, str], ...]:
    """Return every number of the paper's tables as rows of plain text."""
    with Path(__file__).with_name("paper.csv").open(newline="") as file:
        return tuple(csv.DictReader(file))


def paper_row(dataset: str | None, sigma: float | None, method: str | None) -> PaperRow | None:
    """Return what the main table of a data set prints for a method and noise level, or None where it has no such row.

    >>> paper_row("cifar10", 0.5, "catrs").acr
    0.757
    """
    table = MAIN_TABLES.get(dataset or "")
    found = [
        row
        for row in paper_numbers()
        if row["table"] == table and row["method"] == method and sigma is not None and float(row["sigma"]) == sigma
    ]
    if not found:
        return None
    acr = next(float(row["value"]) for row in found if row["metric"] == "acr")
    return PaperRow(acr, {float(row["key"]): float(row["value"]) for row in found if row["metric"] != "acr"})
