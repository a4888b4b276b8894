"""Votes for the predicted class, from the counts file next to a results file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from smoothcert.results.reader import Results, counts_path, read_text

Votes = list[list[tuple[int, int]]]
"""For each image, (class, votes in the estimation stage), most votes first."""


def read_estimation(path: Path, images: int) -> Votes | None:
    """Return the votes of a results file, or None if they do not exist for every image."""
    file = counts_path(path)
    if not file.is_file():
        return None
    rows = [line.split("\t")[2] for line in read_text(file).splitlines()[1 : images + 1] if line.count("\t") >= 2]
    pairs = [[pair.split(":") for pair in row.split()] for row in rows]
    return [[(int(label), int(count)) for label, count in row] for row in pairs] if len(rows) == images else None


def vote_shares(results: Results, votes: Votes | None, sigma: float | None) -> NDArray[np.float64] | None:
    """Return each image's share of votes p_A for the certified class, or for the leading one if it abstained.

    Without votes, return the lower bound Phi(R / sigma) that follows from the radius (NaN for abstentions), or None if
    the noise level is unknown too.
    """
    if votes is None:
        return np.where(results.predict >= 0, ndtr(results.radius / sigma), np.nan) if sigma else None
    shares = np.zeros(len(results))
    for position, (predict, row) in enumerate(zip(results.predict, votes, strict=True)):
        leading = dict(row).get(int(predict), 0) if predict >= 0 else max((count for _, count in row), default=0)
        shares[position] = leading / max(1, sum(count for _, count in row))
    return shares
