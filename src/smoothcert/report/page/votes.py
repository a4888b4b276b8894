"""Read the votes of the estimation stage from the counts file beside a results file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from smoothcert.results.naming import counts_path
from smoothcert.results.reader import read_vote_table
from smoothcert.results.records import Results
from smoothcert.statistics.bounds import Ints


@dataclass(frozen=True)
class Votes:
    """Votes in the estimation stage: the image in row `row[i]` has `count[i]` votes for class `label[i]`."""

    row: Ints
    label: Ints
    count: Ints

    def __getitem__(self, row: int) -> list[tuple[int, int]]:
        """Return the (class, votes) pairs of the image in a row, most votes first."""
        entries = slice(*np.searchsorted(self.row, [row, row + 1]))
        pairs = zip(self.label[entries].tolist(), self.count[entries].tolist(), strict=True)
        return sorted(pairs, key=lambda pair: -pair[1])


def read_estimation(path: Path, images: int) -> Votes | None:
    """Return the votes of the estimation stage, or None if votes are missing for any of the first `images` rows."""
    if not counts_path(path).is_file():
        return None
    table = read_vote_table(path)
    if len(table) < images:
        return None
    chosen = (table.field % 2 == 1) & (table.field < 2 * images)
    return Votes(table.field[chosen] // 2, table.label[chosen], table.count[chosen])


def vote_shares(results: Results, votes: Votes | None, sigma: float | None) -> NDArray[np.float64] | None:
    """Return p_A for each image: the share of votes for the certified class or, for abstentions, for the leading class.

    Without votes, return the bound Phi(R / sigma), NaN for abstentions; None if the noise level is unknown, too.
    """
    if votes is None:
        return np.where(results.predict >= 0, ndtr(results.radius / sigma), np.nan) if sigma else None
    leading, images = np.zeros(len(results)), len(results)
    predicted = results.predict[votes.row]
    counted = (votes.label == predicted) | (predicted < 0)
    np.maximum.at(leading, votes.row[counted], votes.count[counted].astype(np.float64))
    return leading / np.maximum(1.0, np.bincount(votes.row, votes.count, images))
