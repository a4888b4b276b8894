"""How sure the smoothed classifier was: the votes that lie beside a results file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from smoothcert.results.naming import counts_path
from smoothcert.results.reader import read_text
from smoothcert.results.records import Results

Votes = list[list[tuple[int, int]]]
"""For each image its classes with their votes in the estimation, most votes first."""


def read_estimation(path: Path, images: int) -> Votes | None:
    """Return the votes behind a results file, or None where they are not there for every image."""
    file = counts_path(path)
    if not file.is_file():
        return None
    rows = [line.split("\t")[2] for line in read_text(file).splitlines()[1 : images + 1] if line.count("\t") >= 2]
    pairs = [[pair.split(":") for pair in row.split()] for row in rows]
    return [[(int(label), int(count)) for label, count in row] for row in pairs] if len(rows) == images else None


def vote_shares(results: Results, votes: Votes | None, sigma: float | None) -> NDArray[np.float64] | None:
    """Return each image's share of votes p_A for the certified class (the leading one, where it abstained).

    Without votes it is the lower bound that the radius rests on, Phi(R / sigma), and NaN for an abstention; without
    a noise level either, None.
    """
    if votes is None:
        if not sigma:
            return None
        return np.where(results.predict >= 0, ndtr(results.radius / sigma), np.nan)
    shares = np.zeros(len(results))
    for position, (predict, row) in enumerate(zip(results.predict, votes, strict=True)):
        leading = dict(row).get(int(predict), 0) if predict >= 0 else max((count for _, count in row), default=0)
        shares[position] = leading / max(1, sum(count for _, count in row))
    return shares
