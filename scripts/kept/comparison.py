"""Our rows beside the paper's: differences in ACR, and the order of the methods."""

from itertools import combinations

import numpy as np

from smoothcert.report.tables.paper_numbers import paper_row
from smoothcert.statistics.metrics import average_certified_radius, paired_difference

CLOSE = 0.01
"""Largest difference from the paper's ACR that counts as reproduced."""
_TITLES = [
    f"| sigma | method | ACR | rounded | paper | difference | within {CLOSE} | paper, five seeds | difference |",
    "| --: | :--" + " | --:" * 4 + " | :-- | --: | --: |",
]


def distances(rows):
    """Return a table of the differences from the paper's ACR, and from its mean over five seeds where it has one."""
    return [*_TITLES, *(distance_line(row) for row in rows if row.paper)]


def distance_line(row):
    """Return one line of the table of differences."""
    entry, seeds, ours = row.entry, five_seeds(row.entry), printed_acr(row.entry.results)
    difference = ours - row.paper.acr
    cells = [f"{entry.sigma:.2f}", entry.name, f"{row.acr.value:.4f}", f"{ours:.4f}", f"{row.paper.acr:.3f}"]
    cells += [f"{difference:+.4f}", "yes" if is_close(difference) else "no"]
    cells += [f"{seeds.acr:.4f} +- {seeds.acr_std:.4f}", f"{ours - seeds.acr:+.4f}"] if seeds else ["", ""]
    return f"| {' | '.join(cells)} |"


def is_close(difference):
    """Return True if a difference, rounded to the four decimals that are shown, counts as reproduced."""
    return abs(round(difference, 4)) <= CLOSE


def five_seeds(entry):
    """Return the paper's mean over five seeds for the same settings and images, or None.

    The paper's seeds on CIFAR-10 are on every fifth image, so they are not comparable with its main table.
    """
    same = entry.dataset == "mnist" and not entry.paper[1]
    return paper_row(entry.dataset, entry.sigma, entry.method, "tab:variance", "5 seeds") if same else None


def printed_acr(results):
    """Return the ACR of radii rounded as in the published results files, from which the paper's ACRs are computed."""
    return average_certified_radius(as_printed(results.radius), results.correct)


def as_printed(radius):
    """Round radii to three significant digits."""
    return np.array([float(f"{value:.3}") for value in radius])


def ranking(table):
    """Return the methods by ACR at each noise level, and every pair that the paper has in the opposite order."""
    lines = ["| sigma | methods by ACR | same order as the paper |", "| --: | :-- | :-- |"]
    swaps = []
    for group in table.groups():
        rows = sorted((row for row in group if row.paper), key=lambda row: row.acr.value)
        swapped = [(low, high) for low, high in combinations(rows, 2) if low.paper.acr > high.paper.acr]
        names = " < ".join(row.entry.name for row in rows)
        lines.append(f"| {group[0].entry.sigma:.2f} | {names} | {'no' if swapped else 'yes'} |")
        swaps += [f"- sigma {group[0].entry.sigma:.2f}: {swap_text(low, high)}" for low, high in swapped]
    return [*lines, *([""] if swaps else []), *swaps]


def swap_text(low, high):
    """Return a sentence on two rows that the paper has in the opposite order."""
    pair = paired_difference(*((r.idx, r.radius, r.correct) for r in (high.entry.results, low.entry.results)))
    return swap_sentence(high.entry.name, low.entry.name, pair, low.paper.acr - high.paper.acr)


def swap_sentence(high, low, pair, paper):
    """Return a sentence on a method that is above another one here, but below it in the paper."""
    interval = f"95 % interval {pair.low:.4f} to {pair.high:.4f}, paired"
    return f"{high} is {pair.value:.4f} above {low} ({interval}); in the paper it is {paper:.3f} below."
