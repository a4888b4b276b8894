"""Certified accuracy curves as one line of text, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smoothcert.results.reader import Results
from smoothcert.statistics.metrics import certified_accuracy

_LEVELS = " ▁▂▃▄▅▆▇█"


def sparkline(shares: Sequence[float]) -> str:
    """Draw values from 0 to 1 as bars of eight heights; only exact zeros are blank.

    >>> sparkline([1.0, 0.5, 0.01, 0.0])
    '█▄▁ '
    """
    heights = [min(8, max(round(8 * share), 1 if share > 0 else 0)) for share in shares]
    return "".join(_LEVELS[height] for height in heights)


def curve_line(results: Results, last: float, width: int = 16) -> str:
    """Draw certified accuracy from radius 0 to `last`."""
    shares = certified_accuracy(results.radius, results.correct, np.linspace(0, last, width))
    return sparkline([float(share) for share in shares])
