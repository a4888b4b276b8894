"""Noise distributions and the radii they certify. Does not import torch.

Each noise distribution has a norm. It converts upper bounds on the failure probability to certified radii in this norm,
and radii to failure probabilities. `smoothcert.smoothing.noising` draws the samples.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from smoothcert.errors import UsageError, unknown_name
from smoothcert.statistics.bounds import Floats, check_sigma

NORMS = ("l1", "l2", "linf")


@dataclass(frozen=True)
class Noise(ABC):
    """Noise of standard deviation `sigma` that certifies radii in `norm`."""

    name: ClassVar[str]
    norm: ClassVar[str]

    sigma: float

    def __post_init__(self) -> None:
        """Check the noise level."""
        check_sigma(self.sigma)

    def radius(self, failure: ArrayLike) -> Floats:
        """Return the radius certified by an upper bound on the failure probability, or 0 if it certifies nothing."""
        return np.maximum(self.gap_radius(failure, failure), 0.0)

    @abstractmethod
    def gap_radius(self, failure: ArrayLike, rival: ArrayLike) -> Floats:
        """Return the radius that two upper bounds certify, negative if they certify nothing.

        `failure` bounds the failure probability, and `rival` bounds the probability of the most likely other class (for
        top-k certificates, of the k-th most likely other class).
        """

    @abstractmethod
    def failure_at(self, radius: ArrayLike) -> Floats:
        """Return the largest failure probability that still certifies this radius; negative if there is none."""

    def settings(self) -> dict[str, Any]:
        """Return the sidecar entries that describe the noise, except `sigma`."""
        return {"noise": self.name, "norm": self.norm}


class GaussianNoise(Noise):
    """Gaussian noise, with the l2 radius of Cohen et al. (2019)."""

    name = "gaussian"
    norm = "l2"

    def gap_radius(self, failure: ArrayLike, rival: ArrayLike) -> Floats:
        """Return sigma / 2 * (Phi^-1(1 - failure) - Phi^-1(rival))."""
        quantiles = [special.ndtri(np.asarray(p, dtype=np.float64)) for p in (failure, rival)]
        return np.asarray(-self.sigma / 2 * (quantiles[0] + quantiles[1]))

    def failure_at(self, radius: ArrayLike) -> Floats:
        """Return Phi(-radius / sigma)."""
        return np.asarray(special.ndtr(-np.asarray(radius, dtype=np.float64) / self.sigma))

    def settings(self) -> dict[str, Any]:
        """Return no entries: a sidecar without `noise` means Gaussian noise."""
        return {}


class UniformNoise(Noise):
    """Noise that is uniform in a cube, with the l1 radius of Yang et al. (2020)."""

    name = "uniform"
    norm = "l1"

    @property
    def half_width(self) -> float:
        """Half the side length of the cube."""
        return math.sqrt(3) * self.sigma

    def gap_radius(self, failure: ArrayLike, rival: ArrayLike) -> Floats:
        """Return half_width * (1 - failure - rival).

        A shift of l1 length r changes any probability by at most r / (2 half_width).
        """
        return np.asarray(self.half_width * (1 - np.asarray(failure) - np.asarray(rival)), dtype=np.float64)

    def failure_at(self, radius: ArrayLike) -> Floats:
        """Return 1/2 - radius / (2 half_width)."""
        return np.asarray(0.5 - np.asarray(radius, dtype=np.float64) / (2 * self.half_width))


_MARGIN = 1e-9  # relative; far above the rounding error of a bound in double precision
GRID_STEP = 1e-6
"""Radii of `GridNoise` are rounded down to multiples of this, far above their rounding error in double precision."""


@dataclass(frozen=True)
class GridNoise(GaussianNoise):
    """Gaussian noise rounded to whole steps of 1/255 and drawn with exact integer arithmetic, for sound certificates.

    `slack` bounds the distance between the tabulated and the exact distribution of the noise (see
    `smoothcert.statistics.integer_noise`). Upper bounds on probabilities are increased by `slack` and by a margin for
    rounding errors; radii are rounded down.
    """

    slack: float
    name = "grid"

    def gap_radius(self, failure: ArrayLike, rival: ArrayLike) -> Floats:
        """Return the Gaussian radius for the increased bounds, rounded down."""
        radius = super().gap_radius(self._increased(failure), self._increased(rival))
        below = np.floor(radius / GRID_STEP) * GRID_STEP
        return np.nextafter(below, -np.inf)  # the double may exceed the exact multiple

    def failure_at(self, radius: ArrayLike) -> Floats:
        """Return a failure probability that certifies the radius even after slack, margin and rounding."""
        above = np.asarray(radius, dtype=np.float64) + 2 * GRID_STEP
        return np.asarray((super().failure_at(above) - self.slack) / (1 + 2 * _MARGIN))

    def settings(self) -> dict[str, Any]:
        """Return the sidecar entries for name, norm and slack."""
        return {"noise": self.name, "norm": self.norm, "slack": self.slack}

    def _increased(self, probability: ArrayLike) -> Floats:
        return np.minimum(np.asarray(probability, dtype=np.float64) * (1 + _MARGIN) + self.slack, 1.0)


def make_noise(name: str, sigma: float) -> Noise:
    """Return the noise distribution with a given name and standard deviation."""
    known: dict[str, type[Noise]] = {kind.name: kind for kind in (GaussianNoise, UniformNoise)}
    if not isinstance(name, str) or name not in known:
        raise unknown_name("noise", name, known)
    return known[name](sigma)


def noise_of(settings: Mapping[str, Any]) -> Noise:
    """Return the noise that a sidecar's settings describe."""
    sigma, name = float(settings["sigma"]), settings.get("noise", GaussianNoise.name)
    return GridNoise(sigma, float(settings["slack"])) if name == GridNoise.name else make_noise(name, sigma)


def convert_radius(radius: ArrayLike, norm: str, wanted: str, dimensions: int | None) -> Floats:
    """Return the radius, in norm `wanted`, of the largest ball inside the certified ball of the given radius and norm.

    >>> convert_radius([1.0], "l2", "linf", 16).round(9).tolist(), convert_radius([1.0], "l2", "l1", None).tolist()
    ([0.25], [1.0])
    """
    if wanted not in NORMS:
        raise unknown_name("norm", wanted, NORMS)
    values = np.asarray(radius, dtype=np.float64)
    steps = NORMS.index(wanted) - NORMS.index(norm)
    if steps <= 0:
        return values
    if not dimensions:
        raise UsageError(f"An {wanted} radius needs `dimensions`, the number of values per input.")
    # Slightly reduced, so that rounding in the root and the division never enlarges a certificate.
    return np.asarray(values / dimensions ** (steps / 2) * (1 - 2.0**-50))
