"""Confidence bounds and certificates of randomized smoothing: pure functions on numbers and NumPy arrays, no torch.

Bounds are computed for the *failure* probability 1 - p instead of the success probability p. If p is close to 1, a
double represents 1 - p to full relative precision, while p itself would round to 1.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from smoothcert.errors import UsageError, quote

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ABSTAIN = -1
"""Prediction that marks an abstention; the radius of an abstention is 0."""
_LARGEST_COUNT = 1 << 53  # a double represents all integers up to this one exactly
_TOLERANCE = 1e-9  # largest relative deviation from alpha at which SciPy's inverse is accepted


def failure_upper_bound(successes: ArrayLike, trials: ArrayLike, alpha: float) -> Floats:
    """Return the one-sided Clopper-Pearson upper bound on a failure probability.

    Equal to 1 - `lower_bound`, but without the loss of precision near 0.

    Args:
        successes: Number of successes, broadcast against `trials`.
        trials: Number of trials.
        alpha: Maximum probability that the bound does not hold.

    Returns:
        The bound at confidence 1 - alpha.

    Raises:
        UsageError: If `alpha` is not in (0, 1), or the counts are invalid.

    Example:
        >>> float(failure_upper_bound(100_000, 100_000, 0.001).round(9))
        6.9075e-05
    """
    check_alpha(alpha)
    given = as_floats("successes", successes), as_floats("trials", trials)
    try:
        k, n = np.broadcast_arrays(*given)
    except ValueError as error:
        shapes = f"{given[0].shape} and {given[1].shape}"
        raise UsageError(
            f"Expected `successes` and `trials` to have shapes that broadcast, but got {shapes}."
        ) from error
    if (wrong := (k < 0) | (k > n) | (n < 1)).any():
        got = f"{k[wrong][0]:,.16g} successes in {n[wrong][0]:,.16g} trials"
        raise UsageError(
            f"Expected `successes` to be between 0 and `trials`, and `trials` to be at least 1, but got {got}."
        )
    pairs, places = np.unique(k + 1j * n, return_inverse=True)  # many inputs have the same counts
    successes, trials = pairs.real, pairs.imag
    bound = np.ones(len(pairs))
    some, all_ = (successes > 0) & (successes < trials), successes == trials
    bound[some] = _inverse_tail(trials[some] - successes[some], successes[some], alpha)
    bound[all_] = -np.expm1(np.log(alpha) / trials[all_])
    return bound[places].reshape(k.shape)


def _inverse_tail(failures: Floats, successes: Floats, alpha: float) -> Floats:
    """Return the failure probability at which P(at most `failures` failures) = alpha.

    SciPy's inverse, `betainccinv`, is often too low for exactly 999 failures, for 10**8 or more trials, and for alpha
    below 1e-240: at the value it returns, P can be many times alpha. SciPy's distribution function, `betaincc`, is
    accurate, so we use it to check the inverse, and bisect where the check fails.
    """
    bound: Floats = np.asarray(special.betainccinv(failures + 1, successes, alpha), dtype=np.float64)
    wrong = ~(np.abs(special.betaincc(failures + 1, successes, bound) / alpha - 1) <= _TOLERANCE)
    if wrong.any():
        a, b = failures[wrong] + 1, successes[wrong]
        low, high = np.zeros(len(a)), np.ones(len(a))
        for _ in range(128):
            middle = (low + high) / 2
            holds = special.betaincc(a, b, middle) <= alpha
            low, high = np.where(holds, low, middle), np.where(holds, middle, high)
        bound[wrong] = high
    return bound


def lower_bound(successes: ArrayLike, trials: ArrayLike, alpha: float) -> Floats:
    """Return the one-sided Clopper-Pearson lower bound on a success probability.

    Args:
        successes: Number of successes, broadcast against `trials`.
        trials: Number of trials.
        alpha: Maximum probability that the bound does not hold.

    Returns:
        The bound at confidence 1 - alpha.

    Raises:
        UsageError: If `alpha` is not in (0, 1), or the counts are invalid.

    Example:
        >>> float(lower_bound(100_000, 100_000, 0.001).round(9))
        0.999930925
    """
    return 1.0 - failure_upper_bound(successes, trials, alpha)


def gaussian_radius(failure: ArrayLike, sigma: float) -> Floats:
    """Return the l2 radius sigma * Phi^-1(1 - failure), certified with Gaussian noise (Cohen et al., 2019).

    Args:
        failure: Upper bound on the probability that the base classifier does not return the certified class.
        sigma: Standard deviation of the noise.

    Returns:
        The radius, 0 where `failure` exceeds one half.

    Raises:
        UsageError: If `sigma` is not positive and finite, or `failure` is not numeric.

    Example:
        >>> gaussian_radius([0.1, 0.6], sigma=0.5).round(4).tolist()
        [0.6408, 0.0]
    """
    check_sigma(sigma)
    return np.maximum(-sigma * special.ndtri(as_floats("failure", failure)), 0.0)


def certify_counts(
    selection: ArrayLike, estimation: ArrayLike, sigma: float, alpha: float
) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Certify inputs from the votes of the selection and estimation stages (CERTIFY of Cohen et al., 2019).

    The selection chooses the class with the most votes (the lowest index on ties). The estimation, on independent
    noise samples, bounds the probability of this class.

    Args:
        selection: Class counts of the selection stage, [..., classes].
        estimation: Class counts of the estimation stage, [..., classes].
        sigma: Standard deviation of the noise.
        alpha: Maximum probability that a certificate is false.

    Returns:
        The predictions, `ABSTAIN` where the lower bound is below one half; the l2 radii, 0 where the classifier
        abstains; and the lower bounds on the probability of the selected class.

    Raises:
        UsageError: If `sigma` or `alpha` is out of range, the shapes differ, or counts are invalid or all zero.

    Example:
        >>> prediction, radius, p_lower = certify_counts([[2, 98]], [[10, 990]], sigma=0.5, alpha=0.001)
        >>> prediction.tolist(), radius.round(3).tolist(), p_lower.round(3).tolist()
        ([1], [0.989], [0.976])
    """
    votes, counts = _as_counts("selection", selection), _as_counts("estimation", estimation)
    if votes.shape != counts.shape:
        shapes = f"{votes.shape} and {counts.shape}"
        raise UsageError(f"Expected `selection` and `estimation` to have the same shape, but got {shapes}.")
    chosen = np.argmax(votes, axis=-1)
    successes = np.take_along_axis(counts, chosen[..., None], axis=-1)[..., 0]
    failure = failure_upper_bound(successes, counts.sum(axis=-1), alpha)
    certain = failure <= 0.5
    prediction = np.where(certain, chosen, ABSTAIN).astype(np.int64)
    return prediction, np.where(certain, gaussian_radius(failure, sigma), 0.0), 1.0 - failure


def predict_counts(counts: ArrayLike, alpha: float) -> NDArray[np.int64]:
    """Predict classes from votes (PREDICT of Cohen et al., 2019).

    The class with the most votes is returned only if a two-sided binomial test at level alpha rejects the hypothesis
    that the runner-up is equally likely.

    Args:
        counts: Class counts, [..., classes].
        alpha: Maximum probability of predicting a class other than the most likely class under noise.

    Returns:
        The class with the most votes, or `ABSTAIN` where the test does not reject.

    Raises:
        UsageError: If `alpha` is not in (0, 1), or the counts are invalid.

    Example:
        >>> predict_counts([[520, 480], [700, 300]], alpha=0.001).tolist()
        [-1, 0]
    """
    check_alpha(alpha)
    votes = _as_counts("counts", counts)
    top = np.asarray(np.argmax(votes, axis=-1))
    if votes.shape[-1] == 1:
        return top
    first_two = np.sort(votes, axis=-1)[..., -2:]
    p_value = tie_p_value(first_two[..., 1], first_two.sum(axis=-1))
    return np.where(p_value <= alpha, top, ABSTAIN).astype(np.int64)


def tie_p_value(successes: ArrayLike, trials: ArrayLike) -> Floats:
    """Return the two-sided binomial p-value of the hypothesis that the success probability is one half.

    Args:
        successes: Number of successes, at least half of `trials`.
        trials: Number of trials.

    Returns:
        The p-value.

    Example:
        >>> float(tie_p_value(60, 100).round(4))
        0.0569
    """
    k, n = as_floats("successes", successes), as_floats("trials", trials)
    tail = special.betainc(np.maximum(k, 1.0), n - k + 1, 0.5)  # P(k or more); bdtrc fails for 2**31 trials or more
    return np.minimum(1.0, 2.0 * np.where(k > 0, tail, 1.0))


def smallest_sample(alpha: float) -> int:
    """Return the smallest number of noise samples with which unanimous votes give a certificate.

    Args:
        alpha: Maximum probability that a certificate is false.

    Returns:
        The number of noise samples.

    Raises:
        UsageError: If `alpha` is not in (0, 1).

    Example:
        >>> smallest_sample(0.001)
        10
    """
    check_alpha(alpha)
    n = max(1, math.ceil(math.log(alpha) / math.log(0.5)))
    return n if alpha ** (1 / n) >= 0.5 else n + 1


def largest_radius(sigma: float, n: int, alpha: float) -> float:
    """Return the largest radius that n noise samples can certify: the radius if the votes are unanimous.

    Args:
        sigma: Standard deviation of the noise.
        n: Number of noise samples.
        alpha: Maximum probability that a certificate is false.

    Returns:
        The l2 radius.

    Raises:
        UsageError: If an argument is out of range.

    Example:
        >>> round(largest_radius(1.0, 100_000, 0.001), 4)
        3.8115
    """
    check_count("n", n)
    return float(gaussian_radius(failure_upper_bound(n, n, alpha), sigma))


def check_sigma(sigma: float) -> None:
    """Raise UsageError if the noise level is not a positive finite number."""
    if not 0 < _as_float(sigma) < math.inf:
        raise UsageError(f"Expected `sigma` to be > 0 and finite, but got {quote(sigma)}.")


def check_alpha(alpha: float, name: str = "alpha") -> None:
    """Raise UsageError if `alpha` is not strictly between 0 and 1; `name` is its name in the message."""
    if not 0 < _as_float(alpha) < 1:
        raise UsageError(f"Expected `{name}` to be between 0 and 1, exclusive, but got {quote(alpha)}.")


def check_seed(seed: int) -> None:
    """Raise UsageError if the seed is not a whole number from 0 to 2**63 - 1."""
    number = _as_index(seed)
    if number is None or not 0 <= number < 1 << 63:
        raise UsageError(f"Expected `seed` to be a whole number between 0 and 2**63 - 1, but got {quote(seed)}.")


def _as_float(value: float) -> float:
    """Convert a number or array scalar to a float, and anything else to NaN, which fails all comparisons."""
    try:
        return math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return math.nan


def as_floats(name: str, values: Any) -> Floats:
    """Convert `values` to an array of floats, or raise UsageError for the argument `name`."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "biuf" or not array.size:
            return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    raise UsageError(f"Expected `{name}` to be numbers, but got {quote(values)}.")


def _as_counts(name: str, counts: ArrayLike) -> NDArray[Any]:
    """Convert class counts [..., classes] to integers, or raise UsageError for the argument `name`."""
    array = as_floats(name, counts)
    possible = (array >= 0) & (array < _LARGEST_COUNT) & (array == np.floor(array))
    if not array.ndim or not array.shape[-1] or not possible.all():
        text = "whole numbers of votes per class, from 0 to 2**53 - 1"
        raise UsageError(f"Expected `{name}` to be {text}, but got {quote(counts)}.")
    return array.astype(np.int64)


def check_number(name: str, value: float) -> float:
    """Return `value` as a finite float, or raise UsageError for the argument `name`."""
    number = _as_float(value)
    if not math.isfinite(number):
        raise UsageError(f"Expected `{name}` to be a finite number, but got {quote(value)}.")
    return number


def check_count(name: str, value: int) -> int:
    """Return `value` as a positive int, or raise UsageError for the argument `name`."""
    count = _as_index(value)
    if count is None:
        raise UsageError(f"Expected `{name}` to be a whole number, but got {quote(value)}.")
    if count < 1:
        raise UsageError(f"Expected `{name}` to be at least 1, but got {quote(count)}.")
    if count > _LARGEST_COUNT:
        raise UsageError(f"Expected `{name}` to be at most 2**53, but got {quote(count)}.")
    return count


def _as_index(value: int) -> int | None:
    """Convert an integer or integer array scalar to an int, and anything else to None."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except (TypeError, RuntimeError):
        return None


def check_budget(n0: int, n: int, alpha: float, bound: str = "one-sided") -> None:
    """Raise UsageError if an argument is invalid, or if not even unanimous votes could certify an input."""
    check_count("n0", n0)
    _check_sample(n, alpha, 0.5 if bound == "two-sided" else 1.0, "no input can be certified")


def check_prediction(n: int, alpha: float) -> None:
    """Raise UsageError if an argument is invalid, or if not even unanimous votes could settle a prediction."""
    _check_sample(n, alpha, 0.5, "every prediction abstains")  # PREDICT's test is two-sided


def _check_sample(n: int, alpha: float, share: float, problem: str) -> None:
    check_count("n", n)
    check_alpha(alpha)
    least = smallest_sample(share * alpha)
    if n < least:
        raise UsageError(f"With n = {n} {problem} at alpha = {alpha}; use n >= {least}.")
