"""Numbers printed in the paper's tables, for comparison.

`paper.csv` contains the tables of "Confidence-aware Training of Smoothed Classifiers for Certified Robustness" (Jeong,
Kim and Shin, AAAI 2023), one number per line.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path

from smoothcert.training.known_methods import method_title

_ORDER = ("gaussian", "stability", "smoothadv", "macer", "consistency", "smoothmix", "catrs")
PAPER_METHODS = {name: method_title(name) for name in _ORDER}
"""The paper's methods and their printed names, in the order of its tables."""

ALIASES = {"cat-rs": "catrs", "cat_rs": "catrs", "cohen": "gaussian", "salman": "smoothadv", "stab": "stability"}
"""Methods by the alternative names that published results files use."""

_LINF_TABLE = "tab:l_infty_robustness"  # additional l_inf columns for rows of the main table


@dataclass(frozen=True)
class PaperRow:
    """A printed table row: ACR, certified accuracy in percent by l2 radius, and what only some tables have."""

    acr: float
    accuracy: Mapping[float, float]
    acr_std: float | None = None  # over seeds
    hours: float | None = None  # of training on a Titan X
    linf: Mapping[float, float] = field(default_factory=dict)  # certified accuracy by l_inf radius


def method_rank(method: str | None) -> int:
    """Return the position of a method in the paper's tables; unknown methods come last."""
    return list(PAPER_METHODS).index(method) if method in PAPER_METHODS else len(PAPER_METHODS)


@cache
def paper_numbers() -> tuple[dict[str, str], ...]:
    """Return the rows of `paper.csv`."""
    with Path(__file__).with_name("paper.csv").open(newline="") as file:
        return tuple(csv.DictReader(file))


def paper_row(
    dataset: str | None, sigma: float | None, method: str | None, table: str | None = None, setup: str = ""
) -> PaperRow | None:
    """Return the printed row of a method at a noise level, or None if the paper has no such row.

    By default, `table` is the dataset's main table together with its l_inf numbers. `setup` selects one of several rows
    of a method.

    >>> paper_row("cifar10", 0.5, "catrs").acr
    0.757
    """
    main_table = "tab:FMNIST" if dataset == "fashion_mnist" else f"tab:{dataset}"
    tables = (table,) if table else (main_table, _LINF_TABLE)
    rows = [row for row in paper_numbers() if row["table"] in tables]
    rows = [row for row in rows if (row["dataset"], row["setup"]) == (dataset, setup)]
    if any(row["method"] == method for row in rows) or not setup:  # in ablation tables, every row has the method CAT-RS
        rows = [row for row in rows if row["method"] == method]
    rows = [row for row in rows if sigma and float(row["sigma"]) == sigma]
    values: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        values[row["metric"]][row["key"]] = float(row["value"])
    if not values["acr"]:
        return None
    return PaperRow(
        acr=values["acr"][""],
        accuracy={float(key): value for key, value in values["certified_accuracy"].items()},
        acr_std=values["acr_std"].get(""),
        hours=values["titanx_pascal_hours"].get(""),
        linf={float(Fraction(key)): value for key, value in values["linf_certified_accuracy"].items()},
    )


def paper_corruptions(suite: str, method: str | None, kind: str) -> dict[str, float]:
    """Return the numbers that the paper states for a method on a corrupted dataset, at sigma 0.25.

    `kind` is `acr`, or `accuracy` in percent. Keys are the paper's short corruption names, `mean`, `clean`, and `sev 1`
    to `sev 5`.

    >>> paper_corruptions("mnist-c", "catrs", "acr")["mean"], paper_corruptions("cifar10-c", "catrs", "acr")["sev 1"]
    (0.693, 0.521)
    """
    rows = [
        row
        for row in paper_numbers()
        if (row["dataset"], row["method"]) == (suite.replace("-", ""), method) and row["metric"] == f"corruption_{kind}"
    ]
    by_type = {row["key"]: float(row["value"]) for row in rows if row["setup"] in ("", "mean")}
    severities = [row for row in rows if row["setup"].isdigit() and row["key"] == "mean"]
    return by_type | {f"sev {row['setup']}": float(row["value"]) for row in severities}
