"""The numbers printed in the paper's tables, to set beside ours.

`paper.csv` holds the figures of "Confidence-aware Training of Smoothed Classifiers for Certified Robustness" (Jeong,
Kim and Shin, AAAI 2023), one number a line.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
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

ALIASES = {"cat-rs": "catrs", "cat_rs": "catrs", "cohen": "gaussian", "salman": "smoothadv", "stab": "stability"}
"""Names under which published result files know some of the methods."""


_METRICS = ("acr", "certified_accuracy", "acr_std", "titanx_pascal_hours")


@dataclass(frozen=True)
class PaperRow:
    """A row of a table as printed: ACR, certified accuracy in percent by radius, and what some tables have beside.

    That is the standard deviation of ACR over seeds, the hours of training on a Titan X, and l_inf accuracy by radius.
    """

    acr: float
    accuracy: Mapping[float, float]
    acr_std: float | None = None
    hours: float | None = None
    linf: Mapping[float, float] = field(default_factory=dict)


@cache
def paper_numbers() -> tuple[dict[str, str], ...]:
    """Return every number of the paper's tables as rows of plain text."""
    with Path(__file__).with_name("paper.csv").open(newline="") as file:
        return tuple(csv.DictReader(file))


def paper_row(
    dataset: str | None, sigma: float | None, method: str | None, table: str | None = None, setup: str = ""
) -> PaperRow | None:
    """Return what a table prints for a method and noise level, or None where it has no such row.

    The table is the main one of the data set unless it is named; `setup` tells its rows of one method apart.

    >>> paper_row("cifar10", 0.5, "catrs").acr
    0.757
    """
    place = {"table": table or MAIN_TABLES.get(dataset or ""), "setup": setup, "dataset": dataset}
    rows = [row for row in paper_numbers() if all(row[key] == value for key, value in place.items())]
    if any(row["method"] == method for row in rows) or not setup:  # an ablation counts its baseline as CAT-RS
        rows = [row for row in rows if row["method"] == method]
    rows = [row for row in rows if sigma and float(row["sigma"]) == sigma]
    values = {name: {row["key"]: float(row["value"]) for row in rows if row["metric"] == name} for name in _METRICS}
    if not values["acr"]:
        return None
    accuracy = {float(key): value for key, value in values["certified_accuracy"].items()}
    hours, spread = values["titanx_pascal_hours"].get(""), values["acr_std"].get("")
    return PaperRow(values["acr"][""], accuracy, spread, hours, _linf(dataset, sigma, method) if table is None else {})


def _linf(dataset: str | None, sigma: float | None, method: str | None) -> dict[float, float]:
    """Return the l_inf accuracies the paper derives from the certificates of a main table's row."""
    return {
        float(Fraction(row["key"])): float(row["value"])
        for row in paper_numbers()
        if row["metric"] == "linf_certified_accuracy"
        and (row["dataset"], row["method"], float(row["sigma"])) == (dataset, method, sigma)
    }


def paper_corruptions(suite: str, method: str | None, kind: str) -> dict[str, float]:
    """Return what the paper prints of a method on a corrupted set, at sigma 0.25: `acr`, or `accuracy` in percent.

    Keys are its short names of corruptions, `mean`, `clean`, and `sev 1` to `sev 5`.

    >>> paper_corruptions("mnist-c", "catrs", "acr")["mean"], paper_corruptions("cifar10-c", "catrs", "acr")["sev 1"]
    (0.693, 0.521)
    """
    rows = [
        row
        for row in paper_numbers()
        if (row["dataset"], row["method"]) == (suite.replace("-", ""), method) and row["metric"] == f"corruption_{kind}"
    ]
    types = {row["key"]: float(row["value"]) for row in rows if row["setup"] in ("", "mean")}
    levels = {
        f"sev {row['setup']}": float(row["value"]) for row in rows if row["setup"].isdigit() and row["key"] == "mean"
    }
    return types | levels
