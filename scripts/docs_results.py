"""Draw the figure of RESULTS.md: the paper's ACR against ours for every reproduced row, light and dark.

python scripts/docs_results.py [FOLDER]
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from picture_style import save_pictures

from kept.comparison import CLOSE, as_printed
from kept.coverage import in_paper
from kept.published import pair_with_published
from kept.shelf import has_corrupted_images, kept_rows
from smoothcert.paper.jobs import find_table
from smoothcert.paper.reproduce import row_of
from smoothcert.report.palette import DARK, LIGHT, METHOD_COLORS
from smoothcert.report.tables.paper_numbers import PAPER_METHODS, paper_row
from smoothcert.results.reader import read_results
from smoothcert.statistics.metrics import robust_radius
from smoothcert.training.recipes import paper_tables

ROOT = Path(__file__).parent.parent
COLORS = {"": LIGHT, "-dark": DARK}


def reproduced_rows(results):
    """Return (method, paper's ACR, ours, half of its 95 % interval) of every row on clean images, each run once.

    Where the authors published results per image, both ACRs are on the same images, and the interval is that of their
    paired difference.
    """
    rows = {}
    for name in paper_tables():
        if has_corrupted_images(name) or not in_paper(name) or len(find_table(name).seeds) > 1:
            continue
        for job, path in kept_rows(results, name):
            found = read_results(path)
            entry = row_of(name, job, found)
            paper = paper_row(entry.dataset, entry.sigma, entry.method, *entry.paper)
            if pair := pair_with_published(entry):
                half = 1.96 * pair.difference.standard_error
                rows[path.resolve()] = (entry.method, pair.published, pair.ours, half)
            elif paper is not None:
                radii = robust_radius(as_printed(found.radius), found.correct)
                half = 1.96 * radii.std(ddof=1) / np.sqrt(len(radii))
                rows[path.resolve()] = (entry.method, paper.acr, float(radii.mean()), float(half))
    return list(rows.values())


def draw(rows, colors, ink):
    """Draw all rows on the diagonal, and their distance from it."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.2), layout="constrained")
    ends = [0.9 * min(paper for _, paper, _, _ in rows), 1.04 * max(paper for _, paper, _, _ in rows)]
    left.plot(ends, ends, color=ink, linewidth=0.8)
    right.axhline(0, color=ink, linewidth=0.8)
    right.axhspan(-CLOSE, CLOSE, color=ink, alpha=0.1, linewidth=0)
    for method in [name for name in PAPER_METHODS if any(row[0] == name for row in rows)]:
        paper, ours, half = np.array([row[1:] for row in rows if row[0] == method]).T
        look = {"color": colors[METHOD_COLORS.get(method, len(colors) - 1)], "fmt": "o", "ms": 4.5, "elinewidth": 1}
        left.errorbar(paper, ours, half, label=PAPER_METHODS[method], **look)
        right.errorbar(paper, ours - paper, half, **look)
    left.legend(fontsize=9)
    left.set(xlabel="ACR in the paper", ylabel="our ACR", xlim=ends, ylim=ends, aspect="equal")
    left.set_title(f"{len(rows)} runs, with 95 % intervals", fontsize=11)
    right.set(xlabel="ACR in the paper", ylabel="our ACR minus the paper's")
    right.set_title(f"the same, as differences; band: {CLOSE}", fontsize=11)
    for panel in (left, right):
        panel.grid(linewidth=0.6)
    return figure


if __name__ == "__main__":
    rows = reproduced_rows(ROOT / "results")
    save_pictures("results-paper", lambda suffix, ink: draw(rows, COLORS[suffix], ink))
