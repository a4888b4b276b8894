"""Our rows against the paper's: how far off each ACR is, and whether the methods come in the same order."""

from itertools import combinations

import numpy as np

from smoothcert.report.tables.paper_numbers import paper_row
from smoothcert.statistics.metrics import average_certified_radius, paired_difference

_USUAL = "0.01 of the paper (CAT-RS on MNIST: 0.005)"
_ROUNDED = (
    "Rounded: our ACR of radii rounded to three digits, as those of the paper are; at sigma 0.5 the largest that "
    "100,000 noises can prove, 1.906, is 1.91 there."
)


def distances(rows):
    """Return a table of how far each ACR is from the paper's, and from its mean over five seeds, where it has one."""
    lines = [
        "| sigma | method | ACR | rounded | paper | off by | five seeds | off by | close |",
        "| --: | :--" + " | --:" * 6 + " | :-- |",
    ]
    lines += [distance_line(row) for row in rows if row.paper]
    usual = "0.02 of the paper" if any(is_small(row.entry) for row in rows) else _USUAL
    return [*lines, "", f"Close: within {usual}, or two standard deviations of its mean over seeds.", "", _ROUNDED]


def distance_line(row):
    """Return a line of that table.

    The paper's are means of radii as they were printed, so ours are rounded likewise before they are compared.
    """
    entry, seeds = row.entry, five_seeds(row.entry)
    ours = average_certified_radius(as_printed(entry.results.radius), entry.results.correct)
    off, mean = ours - row.paper.acr, " | "
    close = abs(off) <= tolerance(entry)
    if seeds:
        mean = f"{seeds.acr:.4f} +- {seeds.acr_std:.4f} | {ours - seeds.acr:+.4f}"
        close = close or abs(ours - seeds.acr) <= 2 * seeds.acr_std
    cells = [f"{entry.sigma:.2f}", entry.name, f"{row.acr.value:.4f}", f"{ours:.4f}", f"{row.paper.acr:.3f}"]
    return f"| {' | '.join(cells)} | {off:+.4f} | {mean} | {'yes' if close else 'no'} |"


def five_seeds(entry):
    """Return the paper's row of five seeds: on MNIST, of the main table's settings.

    On CIFAR-10 they are of other images than the main table: every fifth, of another mean.
    """
    same = entry.dataset == "mnist" and not entry.paper[1]
    return paper_row(entry.dataset, entry.sigma, entry.method, "tab:variance", "5 seeds") if same else None


def as_printed(radius):
    """Round radii as the published results have them: three significant digits, to nearest."""
    return np.array([float(f"{value:.3}") for value in radius])


def tolerance(entry):
    """Return how far from the paper's an ACR may be: networks that vary less from seed to seed must come closer."""
    if is_small(entry):
        return 0.02
    return 0.005 if (entry.dataset, entry.method, entry.paper[1]) == ("mnist", "catrs", "") else 0.01


def is_small(entry):
    """Whether it is the ResNet-20 of the paper's ablations, which were tested on 1,000 images."""
    return entry.results.about["settings"]["model"]["architecture"] == "cifar_resnet20"


def ranking(table):
    """Return the methods by ACR at each noise level, and every pair that the paper has the other way round."""
    lines = ["| sigma | by ACR | the paper's order |", "| --: | :-- | :-- |"]
    swaps = []
    for group in table.groups():
        rows = sorted((row for row in group if row.paper), key=lambda row: row.acr.value)
        turned = [(low, high) for low, high in combinations(rows, 2) if low.paper.acr > high.paper.acr]
        names = " < ".join(row.entry.name for row in rows)
        lines.append(f"| {group[0].entry.sigma:.2f} | {names} | {'no' if turned else 'yes'} |")
        swaps += [swap_line(low, high) for low, high in turned]
    return [*lines, *([""] if swaps else []), *swaps]


def swap_line(low, high):
    """Return what there is to say of a pair that the paper has the other way round."""
    pair = paired_difference(*((r.idx, r.radius, r.correct) for r in (high.entry.results, low.entry.results)))
    ours = f"{high.entry.name} is {pair.value:.4f} above {low.entry.name} ({pair.low:.4f} to {pair.high:.4f}, paired)"
    return f"- sigma {low.entry.sigma:.2f}: {ours}, in the paper {low.paper.acr - high.paper.acr:.3f} below."
