"""The statistics of randomized smoothing: pure functions on numbers and NumPy arrays, no torch.

Near certainty the interesting quantity is the *failure* probability 1 - p, which a double holds to full relative
precision where p itself would round to 1. Bounds are therefore computed for failures first.
"""

from __future__ import annotations

import math
import operator

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from smoothcert.errors import UsageError

Floats = NDArray[np.float64]

ABSTAIN = -1
"""The prediction that stands for "no answer"; its radius is 0."""
_CLOSE = 1e-9  # relative to alpha: how far SciPy's inverse is off where it is not astray


def failure_upper_bound(successes: ArrayLike, trials: ArrayLike, alpha: float) -> Floats:
    """Return the Clopper-Pearson upper bound, at confidence 1 - alpha, of the probability to fail.

    It is one minus the lower bound of the success probability, without the cancellation.
    """
    check_alpha(alpha)
    k, n = np.broadcast_arrays(np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    if np.any((k < 0) | (k > n) | (n < 1)):
        raise UsageError("Expected `successes` between 0 and `trials`, and `trials` to be at least 1.")
    bound = np.ones(k.shape)
    some, all_ = (k > 0) & (k < n), k == n
    bound[some] = _failure_at(n[some] - k[some], k[some], alpha)
    bound[all_] = -np.expm1(np.log(alpha) / n[all_])
    return bound


def _failure_at(failures: Floats, successes: Floats, alpha: float) -> Floats:
    """Return the failure probability at which no more than these failures have probability alpha.

    SciPy's inverse goes astray at 999 failures of a million trials or more, and elsewhere from 10**8 trials on or for
    an alpha below 1e-240: too low, by then several times alpha. Its distribution does not, so it has the last word.
    """
    found: Floats = np.asarray(special.betainccinv(failures + 1, successes, alpha), dtype=np.float64)
    astray = ~(np.abs(special.betaincc(failures + 1, successes, found) / alpha - 1) <= _CLOSE)
    if astray.any():
        a, b = failures[astray] + 1, successes[astray]
        low, high = np.zeros(len(a)), np.ones(len(a))
        for _ in range(128):
            middle = (low + high) / 2
            proven = special.betaincc(a, b, middle) <= alpha
            low, high = np.where(proven, low, middle), np.where(proven, middle, high)
        found[astray] = high
    return found


def lower_bound(successes: ArrayLike, trials: ArrayLike, alpha: float) -> Floats:
    """Return the one-sided Clopper-Pearson lower bound of a success probability at confidence 1 - alpha.

    >>> float(lower_bound(100_000, 100_000, 0.001).round(9))
    0.999930925
    """
    return 1.0 - failure_upper_bound(successes, trials, alpha)


def gaussian_radius(failure: ArrayLike, sigma: float) -> Floats:
    """Return Cohen's l2 radius sigma * Phi^-1(1 - failure), or 0 where failure exceeds one half."""
    check_sigma(sigma)
    return np.maximum(-sigma * special.ndtri(np.asarray(failure, dtype=np.float64)), 0.0)


def certify_counts(
    selection: ArrayLike, estimation: ArrayLike, sigma: float, alpha: float
) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Turn the class counts of both stages [..., classes] into predictions, radii and lower bounds of p_A.

    The class is the most frequent of the selection (the lowest index on ties); the estimation, drawn afresh,
    bounds its probability. Where the bound is below one half the answer is ABSTAIN with radius 0.
    """
    chosen = np.argmax(np.asarray(selection), axis=-1)
    counts = np.asarray(estimation)
    successes = np.take_along_axis(counts, chosen[..., None], axis=-1)[..., 0]
    failure = failure_upper_bound(successes, counts.sum(axis=-1), alpha)
    certain = failure <= 0.5
    prediction = np.where(certain, chosen, ABSTAIN).astype(np.int64)
    return prediction, np.where(certain, gaussian_radius(failure, sigma), 0.0), 1.0 - failure


def predict_counts(counts: ArrayLike, alpha: float) -> NDArray[np.int64]:
    """Return Cohen's PREDICT for class counts [..., classes]: the top class, or ABSTAIN.

    The top class must win a two-sided binomial test at one half against the runner-up.
    """
    check_alpha(alpha)
    votes = np.asarray(counts)
    top: NDArray[np.int64] = np.asarray(np.argmax(votes, axis=-1), dtype=np.int64)
    if votes.shape[-1] == 1:
        return top
    first_two = np.sort(votes, axis=-1)[..., -2:]
    p_value = tie_p_value(first_two[..., 1], first_two.sum(axis=-1))
    return np.where(p_value <= alpha, top, ABSTAIN).astype(np.int64)


def tie_p_value(successes: ArrayLike, trials: ArrayLike) -> Floats:
    """Return the two-sided binomial p-value of `successes` (at least half of `trials`) at probability one half."""
    k, n = np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    tail = special.betainc(np.maximum(k, 1.0), n - k + 1, 0.5)  # P(at least k); bdtrc would fail from 2**31 trials on
    return np.minimum(1.0, 2.0 * np.where(k > 0, tail, 1.0))


def smallest_sample(alpha: float) -> int:
    """Return the least n at which n votes out of n certify anything at all.

    >>> smallest_sample(0.001)
    10
    """
    check_alpha(alpha)
    n = max(1, math.ceil(math.log(alpha) / math.log(0.5)))
    return n if alpha ** (1 / n) >= 0.5 else n + 1


def largest_radius(sigma: float, n: int, alpha: float) -> float:
    """Return the radius of n votes out of n: no certificate can exceed it.

    >>> round(largest_radius(1.0, 100_000, 0.001), 4)
    3.8115
    """
    return float(gaussian_radius(failure_upper_bound(n, n, alpha), sigma))


def check_sigma(sigma: float) -> None:
    """Refuse a noise level that is not a positive finite number."""
    if not 0 < _number(sigma) < math.inf:
        raise UsageError(f"Expected `sigma` to be > 0 and finite, but got {sigma!r}.")


def check_alpha(alpha: float) -> None:
    """Refuse a failure probability outside (0, 1)."""
    if not 0 < _number(alpha) < 1:
        raise UsageError(f"Expected `alpha` to be between 0 and 1, exclusive, but got {alpha!r}.")


def check_seed(seed: int) -> None:
    """Refuse a seed that is no key of the noise."""
    if not (hasattr(seed, "__index__") and 0 <= seed < 1 << 63):
        raise UsageError(f"Expected `seed` to be a whole number between 0 and 2**63 - 1, but got {seed!r}.")


def _number(value: float) -> float:
    """Return a number, be it an array library's, and NaN for what is none: nothing compares with it."""
    try:
        return math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        return math.nan


def check_count(name: str, value: int) -> int:
    """Return a number of things; refuse a fraction, and less than one."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise UsageError(f"Expected `{name}` to be a whole number, but got {value!r}.")
    count = operator.index(value)
    if count < 1:
        raise UsageError(f"Expected `{name}` to be at least 1, but got {count}.")
    return count


def check_budget(n0: int, n: int, alpha: float, bound: str = "one-sided") -> None:
    """Refuse sample sizes that can never certify, and say which could; a two-sided bound has half of alpha for it."""
    check_count("n0", n0)
    check_count("n", n)
    check_alpha(alpha)
    least = smallest_sample(alpha / 2 if bound == "two-sided" else alpha)
    if n < least:
        raise UsageError(f"With n = {n} no input can be certified at alpha = {alpha}; take n of at least {least}.")


def check_prediction(n: int, alpha: float) -> None:
    """Refuse a sample size with which PREDICT always abstains, and say which would do: its test is two-sided."""
    check_count("n", n)
    check_alpha(alpha)
    least = smallest_sample(alpha / 2)
    if n < least:
        raise UsageError(f"With n = {n} every prediction abstains at alpha = {alpha}; take n of at least {least}.")
