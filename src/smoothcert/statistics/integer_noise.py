"""Tables for drawing Gaussian noise on the grid of 8-bit images with integer arithmetic. Does not import torch.

A table is a list of thresholds. For an integer u drawn uniformly from [0, 2**60), count the thresholds that are at most
u, and subtract an offset: the result is Gaussian noise rounded to whole steps of 1/255. Rounding commutes with
adding an 8-bit image. So for a base classifier that first rounds and clips its input, votes have the same distribution
as under exact Gaussian noise (Voracek and Hein, ICLR 2023). Probabilities need 60 bits, more than a double has, so they
are computed as decimals.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cache

from smoothcert.statistics.bounds import check_sigma
from smoothcert.statistics.noise import GridNoise

BITS = 60
LEVELS = 255
_DIGITS = 60
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
_FARTHEST = 10  # standard deviations beyond which the tail probability is below half of 2**-60


@dataclass(frozen=True)
class Thresholds:
    """Table for one noise level: the noise is at most j - `offset` steps with probability counts[j] / 2**60.

    Noisy pixels are clipped to [`low`, `high`], on a scale where 0 is black and 255 is white.
    """

    counts: tuple[int, ...]
    offset: int
    low: int
    high: int

    def slack(self, dimensions: int) -> float:
        """Return an upper bound on the error that rounding the thresholds causes in the probability of any event."""
        return dimensions * len(self.counts) * 2.0**-BITS


@cache
def thresholds(sigma: float) -> Thresholds:
    """Return the table for noise of standard deviation `sigma` on images in [0, 1]."""
    check_sigma(sigma)
    margin = max(1, int(6 * sigma))
    offset = LEVELS * (margin + 1)
    upper = [_parts(2 * step + 1, sigma) for step in range(offset + 1)]
    lower = [(1 << BITS) - _parts(-2 * step - 1, sigma) for step in range(-offset, 0)]  # by symmetry
    return Thresholds((*lower, *upper), offset, -LEVELS * margin, LEVELS * (margin + 1))


def grid_noise(sigma: float, dimensions: int) -> GridNoise:
    """Return the noise for sound certification of inputs with `dimensions` values each."""
    return GridNoise(sigma, thresholds(sigma).slack(dimensions))


def _parts(odd: int, sigma: float) -> int:
    """Return 2**60 * Phi(odd / (510 * sigma)), rounded; `odd` is a positive number of half steps."""
    with localcontext() as context:
        context.prec = _DIGITS
        z = Decimal(odd) / (2 * LEVELS * Decimal(sigma))
        return 1 << BITS if z > _FARTHEST else int((normal_cdf(z) * (1 << BITS)).to_integral_value())


def normal_cdf(z: Decimal) -> Decimal:
    """Return Phi(z) for z >= 0 to the precision of the decimal context.

    The value is the sum of the series 1/2 + phi(z) (z + z^3/3 + z^5/15 + ...).

    >>> round(normal_cdf(Decimal("1.959963984540054")), 15)
    Decimal('0.975000000000000')
    """
    term = total = z
    divisor = 1
    while total + term != total:
        divisor += 2
        term = term * z * z / divisor
        total += term
    return Decimal("0.5") + total * (-z * z / 2).exp() / (2 * _PI).sqrt()
