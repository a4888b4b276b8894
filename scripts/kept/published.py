"""Our rows beside the results that the paper's authors published, image by image."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kept.comparison import CLOSE, as_printed, printed_acr
from smoothcert.report.tables.paper_numbers import paper_row
from smoothcert.results.reader import read_results
from smoothcert.statistics.metrics import Estimate, average_certified_radius, paired_difference

_FOLDER = Path(__file__).parents[2] / "tests/data/published"
_NAMES = {"gaussian": "cohen", "stability": "stab", "smoothadv": "salman", "catrs": "cat-rs"}
_TITLES = [
    "| sigma | method | ACR | published | difference | standard error | spread over seeds | agrees |",
    "| --: | :-- | --: | --: | --: | --: | --: | :-- |",
]


@dataclass(frozen=True)
class Pair:
    """A row and the published results on the same images, with radii rounded as published.

    `spread` is the paper's standard deviation of the ACR over five seeds, 0 if it reports none.
    """

    ours: float
    published: float
    difference: Estimate
    spread: float

    @property
    def agrees(self):
        """True if the difference is small, or explained by its standard error and the spread between seeds."""
        allowed = max(CLOSE, 2 * self.difference.standard_error + self.spread)
        return abs(round(self.difference.value, 4)) <= allowed


def pair_with_published(entry):
    """Return an entry's pair, or None if there are no published results for its settings."""
    path = _FOLDER / entry.dataset / f"{_NAMES.get(entry.method, entry.method)}-{entry.sigma}.tsv.gz"
    if not path.is_file() or not entry.paper or entry.paper[1]:
        return None
    ours, published = entry.results, _read(path)
    chosen = [list(published.idx).index(idx) for idx in ours.idx]
    mine, theirs = (
        (ours.idx, as_printed(ours.radius), ours.correct),
        (published.idx, published.radius, published.correct),
    )
    seeds = paper_row(entry.dataset, entry.sigma, entry.method, "tab:variance", "5 seeds")
    same = average_certified_radius(published.radius[chosen], published.correct[chosen])
    spread = seeds.acr_std if seeds and seeds.acr_std else 0.0
    return Pair(printed_acr(ours), same, paired_difference(mine, theirs), spread)


@cache
def _read(path):
    return read_results(path)


def published_lines(rows):
    """Return a table of the rows that have published results, or nothing."""
    pairs = [(row.entry, pair) for row in rows if (pair := pair_with_published(row.entry))]
    return [*_TITLES, *(pair_line(entry, pair) for entry, pair in pairs), ""] if pairs else []


def pair_line(entry, pair):
    """Return one line of the table."""
    spread = f"{pair.spread:.4f}" if pair.spread else ""
    cells = [f"{entry.sigma:.2f}", entry.name, f"{pair.ours:.4f}", f"{pair.published:.4f}"]
    cells += [f"{pair.difference.value:+.4f}", f"{pair.difference.standard_error:.4f}", spread]
    return f"| {' | '.join([*cells, 'yes' if pair.agrees else 'no'])} |"
