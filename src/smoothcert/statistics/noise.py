"""The noises an input may be smoothed with, as far as certificates go: pure functions, no torch.

Each says which radius a failure probability proves, in which norm, and the other way round. How its numbers are drawn
is in `smoothcert.smoothing.noising`.
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
    """A noise of standard deviation `sigma` that proves radii in `norm`."""

    name: ClassVar[str]
    norm: ClassVar[str]

    sigma: float

    def __post_init__(self) -> None:
        """Check the noise level."""
        check_sigma(self.sigma)

    def radius(self, failure: ArrayLike) -> Floats:
        """Return the radius proven where the class fails with at most this probability, 0 where none is."""
        return np.maximum(self.gap_radius(failure, failure), 0.0)

    @abstractmethod
    def gap_radius(self, failure: ArrayLike, rival: ArrayLike) -> Floats:
        """Return the radius proven by upper bounds of the class's failure and of any rival, negative where none is."""

    @abstractmethod
    def failure_at(self, radius: ArrayLike) -> Floats:
        """Return the largest failure probability that still proves this radius; negative where there is none."""

    def settings(self) -> dict[str, Any]:
        """Return what a sidecar says of the noise beside its level."""
        return {"noise": self.name, "norm": self.norm}


class Gaussian(Noise):
    """Normal noise and Cohen's l2 radius (2019)."""

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
        """Return nothing: it is what a sidecar means that does not speak of noise."""
        return {}


class Uniform(Noise):
    """Noise uniform in a cube, and the l1 radius of Yang et al. (2020)."""

    name = "uniform"
    norm = "l1"

    @property
    def half_width(self) -> float:
        """How far a value moves at most."""
        return math.sqrt(3) * self.sigma

    def gap_radius(self, failure: ArrayLike, rival: ArrayLike) -> Floats:
        """Return half_width * (1 - failure - rival): a shift of l1 length r moves at most r / (2 half_width)."""
        return np.asarray(self.half_width * (1 - np.asarray(failure) - np.asarray(rival)), dtype=np.float64)

    def failure_at(self, radius: ArrayLike) -> Floats:
        """Return 1/2 - radius / (2 half_width)."""
        return np.asarray(0.5 - np.asarray(radius, dtype=np.float64) / (2 * self.half_width))


_DOUBT = 1e-9  # relative: far more than double arithmetic errs in a bound
_STEP = 1e-6  # radii are rounded down to multiples of this, far more than it errs in a radius


@dataclass(frozen=True)
class Grid(Gaussian):
    """Normal noise rounded to whole steps of 1/255, drawn in exact integers: a certificate for 8-bit inputs.

    `slack` is how far its tabulated distribution may be from the exact one (see
    `smoothcert.statistics.integer_noise`). Probabilities are worsened by it and by more than double arithmetic can err,
    and radii are rounded down.
    """

    slack: float
    name = "grid"

    def gap_radius(self, failure: ArrayLike, rival: ArrayLike) -> Floats:
        """Return the Gaussian's radius for worsened probabilities, rounded down."""
        radius = super().gap_radius(self._worse(failure), self._worse(rival))
        return np.nextafter(np.floor(radius / _STEP) * _STEP, -np.inf)  # the double may lie above the multiple

    def failure_at(self, radius: ArrayLike) -> Floats:
        """Return a failure that proves the radius in spite of worsening and rounding."""
        above = np.asarray(radius, dtype=np.float64) + 2 * _STEP
        return np.asarray((super().failure_at(above) - self.slack) / (1 + 2 * _DOUBT))

    def settings(self) -> dict[str, Any]:
        """Return the name and the slack."""
        return {"noise": self.name, "norm": self.norm, "slack": self.slack}

    def _worse(self, probability: ArrayLike) -> Floats:
        return np.minimum(np.asarray(probability, dtype=np.float64) * (1 + _DOUBT) + self.slack, 1.0)


def make_noise(name: str, sigma: float) -> Noise:
    """Return a noise by its name."""
    known: dict[str, type[Noise]] = {kind.name: kind for kind in (Gaussian, Uniform)}
    if name not in known:
        raise unknown_name("noise", name, known)
    return known[name](sigma)


def noise_of(settings: Mapping[str, Any]) -> Noise:
    """Return the noise that a sidecar's settings speak of."""
    sigma, name = float(settings["sigma"]), settings.get("noise", Gaussian.name)
    return Grid(sigma, float(settings["slack"])) if name == Grid.name else make_noise(name, sigma)


def convert_radius(radius: ArrayLike, norm: str, wanted: str, dimensions: int | None) -> Floats:
    """Return the radius of the largest ball in another norm that the certified ball holds.

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
        raise UsageError(f"An {wanted} radius needs the number of values of an input; say it with `--dimensions`.")
    # A hair less, so that the division and the root never round a certificate up.
    return np.asarray(values / dimensions ** (steps / 2) * (1 - 2.0**-50))
