"""Certificates of a cascade of smoothed classifiers (Jeong and Shin, 2023). Does not import torch.

A cascade consults smoothed classifiers, its levels, in order of decreasing sigma. The first level at which a class has
a probability above p_0 answers with this class; if there is no such level, the cascade abstains. So the noise level
that is used depends on the input. `docs/combining.md` proves that the certificates are valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from smoothcert.errors import UsageError, quote
from smoothcert.statistics.bounds import ABSTAIN, Floats, Ints, check_alpha, check_sigma, failure_upper_bound


class CascadeCertified(NamedTuple):
    """Certificates of several inputs: predictions (-1 for an abstention), radii, and answering levels (-1 for none)."""

    prediction: Ints
    radius: Floats
    level: Ints


@dataclass(frozen=True)
class CascadeRule:
    """Settings of a cascade: the noise level of each classifier, the threshold, and the shares of alpha.

    A cascade of K levels needs K lower and K - 1 upper bounds, which must hold simultaneously.

    Attributes:
        sigmas: Standard deviation of the noise at each level, decreasing.
        p0: Class probability above which a level answers, in [0.5, 1).
        alpha: Maximum probability that a certificate is false.
        first_share: Share of alpha for the first level's lower bound; the other 2K - 2 bounds share the rest equally.

    >>> rule = CascadeRule((1.0, 0.5, 0.25))
    >>> round(rule.lower_alpha(0), 6), round(rule.lower_alpha(1), 6), round(rule.upper_alpha, 6)
    (0.0008, 5e-05, 5e-05)
    """

    sigmas: tuple[float, ...]
    p0: float = 0.5
    alpha: float = 0.001
    first_share: float = 0.8

    def __post_init__(self) -> None:
        """Check the settings."""
        for sigma in self.sigmas:
            check_sigma(sigma)
        check_alpha(self.alpha)
        if len(self.sigmas) < 2:
            raise UsageError(f"Expected at least two levels in a cascade, but got {len(self.sigmas)}.")
        if any(first <= second for first, second in zip(self.sigmas, self.sigmas[1:], strict=False)):
            given = " ".join(f"{sigma:g}" for sigma in self.sigmas)
            raise UsageError(f"Expected the levels of a cascade to be in order of decreasing sigma, but got {given}.")
        if not 0.5 <= self.p0 < 1:
            raise UsageError(f"Expected `p0` to be at least 0.5 and below 1, but got {quote(self.p0)}.")
        if not 0 < self.first_share < 1:
            raise UsageError(
                f"Expected `first_share` to be between 0 and 1, exclusive, but got {quote(self.first_share)}."
            )

    def lower_alpha(self, level: int) -> float:
        """Return the part of alpha spent on a level's lower bound."""
        return self.alpha * self.first_share if level == 0 else self.upper_alpha

    @property
    def upper_alpha(self) -> float:
        """Part of alpha spent on each upper bound."""
        return self.alpha * (1 - self.first_share) / (2 * len(self.sigmas) - 2)

    def check_reach(self, n: int) -> None:
        """Raise UsageError if not even n unanimous votes let the first level answer."""
        if not self._answer_radius(0, np.array([n]), np.array([n]))[0] > 0:
            raise UsageError(
                f"With n = {n:,} and alpha = {self.alpha:g}, the first level never answers: not even unanimous votes "
                f"prove a class probability above `p0` = {self.p0:g}; use a larger n or a smaller `p0`."
            )

    def certify(self, votes: Sequence[tuple[ArrayLike, ArrayLike]]) -> CascadeCertified:
        """Certify inputs from each level's class counts of selection and estimation, [inputs, classes].

        The cascade also abstains on an input if the votes of a level prove neither that the level answers nor that it
        does not.

        >>> votes = [([[6, 4]], [[520, 480]]), ([[9, 1]], [[990, 10]])]
        >>> CascadeRule((1.0, 0.5)).certify(votes)[0].tolist()  # the first level proves neither
        [-1]
        """
        if len(votes) != len(self.sigmas):
            raise UsageError(f"Expected the votes of {len(self.sigmas)} levels, but got {len(votes)}.")
        state = CascadeState(self, len(np.asarray(votes[0][0])))
        for selection, estimation in votes:
            open_ = state.undecided
            state.add_level(np.asarray(selection)[open_], np.asarray(estimation)[open_])
        return state.certified()

    def _answer_radius(self, level: int, successes: Ints, trials: Ints) -> Floats:
        """Return the l2 radius within which the selected class provably keeps a probability above p_0; <= 0 if none."""
        failure = failure_upper_bound(successes, trials, self.lower_alpha(level))
        return np.asarray(-self.sigmas[level] * (special.ndtri(failure) + special.ndtri(self.p0)))

    def _silent_radius(self, level: int, largest: Ints, trials: Ints) -> Floats:
        """Return the l2 radius within which provably no class exceeds a probability of p_0; <= 0 if none.

        `largest` is the largest vote count of any class, so the most likely class has at most `largest` votes. An upper
        bound computed from `largest` therefore holds for the most likely class, and thus for every class.
        """
        ceiling = failure_upper_bound(trials - largest, trials, self.upper_alpha)
        return np.asarray(self.sigmas[level] * (special.ndtri(self.p0) - special.ndtri(ceiling)))


class CascadeState:
    """State of the inputs between levels: the certificates so far, and the inputs left for the next level."""

    def __init__(self, rule: CascadeRule, inputs: int) -> None:
        self._rule, self._next = rule, 0
        self._radius = np.full(inputs, np.inf)  # radius within which no level so far answers
        self._prediction, self._level = (np.full(inputs, ABSTAIN, dtype=np.int64) for _ in range(2))
        self.undecided = np.arange(inputs)

    def add_level(self, selection: Ints, estimation: Ints) -> None:
        """Process the votes of the next level, [undecided inputs, classes]."""
        rule, level, open_ = self._rule, self._next, self.undecided
        self._next += 1
        chosen, trials = selection.argmax(axis=-1), estimation.sum(axis=-1)
        answer = rule._answer_radius(level, np.take_along_axis(estimation, chosen[:, None], axis=1)[:, 0], trials)
        answers = answer > 0
        self._prediction[open_[answers]], self._level[open_[answers]] = chosen[answers], level
        self._radius[open_[answers]] = np.minimum(self._radius[open_[answers]], answer[answers])
        silent = rule._silent_radius(level, estimation.max(axis=-1), trials)
        goes_on = ~answers & (silent > 0) & (self._next < len(rule.sigmas))
        self._radius[open_[goes_on]] = np.minimum(self._radius[open_[goes_on]], silent[goes_on])
        self.undecided = open_[goes_on]

    def certified(self) -> CascadeCertified:
        """Return the certificates; the cascade abstains on inputs that no level answers."""
        return CascadeCertified(self._prediction, np.where(self._level >= 0, self._radius, 0.0), self._level)
