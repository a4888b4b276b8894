"""Evaluation beyond the average certified radius (ACR): vote shares of the labels, and expected radii with fewer votes.

Does not import torch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from smoothcert.errors import UsageError
from smoothcert.statistics.bounds import Floats, Ints, failure_upper_bound
from smoothcert.statistics.noise import Noise

_TAIL = 10  # standard deviations from the mean beyond which the sum is truncated


def label_shares(votes: ArrayLike, labels: ArrayLike) -> Floats:
    """Return the share of each image's votes, [images, classes], that are for its label; 0 for images without votes."""
    counts, truth = np.asarray(votes), np.asarray(labels)
    known = truth < counts.shape[1]  # labels beyond the last column have no votes
    own = np.take_along_axis(counts, np.where(known, truth, 0)[:, None], axis=1)[:, 0]
    return np.asarray(np.where(known, own, 0) / np.maximum(counts.sum(axis=1), 1), dtype=np.float64)


def share_up_to(values: ArrayLike, at: ArrayLike) -> Floats:
    """Return, for each number in `at`, the share of values that do not exceed it (the empirical distribution function).

    >>> share_up_to([0.2, 0.9, 1.0, 1.0], [0.5, 0.9, 1.0]).tolist()
    [0.25, 0.5, 1.0]
    """
    ranked = np.sort(np.asarray(values, dtype=np.float64))
    return np.asarray(np.searchsorted(ranked, np.atleast_1d(at), side="right") / len(ranked), dtype=np.float64)


def expected_radii(successes: ArrayLike, n: int, fewer: int, noise: Noise, alpha: float) -> Floats:
    """Return the expected radii, 0 for abstentions, if only `fewer` votes had been drawn instead of n.

    `successes` are the votes for the selected class of each image. Votes are independent, so a random subset of the n
    votes stands for a run with `fewer` votes, and its number of successes is hypergeometric. The average expected
    radius of correctly classified images (0 for others) is an unbiased estimate of the ACR with `fewer` votes, with
    less variance than the ACR of one random subset.
    """
    if not 1 <= fewer <= n:
        raise UsageError(f"Expected `fewer` to be between 1 and n = {n:,}, but got {fewer:,}.")
    counts, inverse = np.unique(np.asarray(successes, dtype=np.int64), return_inverse=True)
    radius = noise.radius(failure_upper_bound(np.arange(fewer + 1), fewer, alpha))
    share = counts / n
    mean, spread = fewer * share, np.sqrt(fewer * share * (1 - share))
    first = np.maximum(np.floor(mean - _TAIL * spread - 1), np.maximum(0, fewer - (n - counts))).astype(np.int64)
    last = np.minimum(np.ceil(mean + _TAIL * spread + 1), np.minimum(fewer, counts)).astype(np.int64)
    log_factorial = special.gammaln(np.arange(n + 1) + 1.0)

    def log_choose(total: Ints, chosen: Ints) -> Floats:
        return np.asarray(log_factorial[total] - log_factorial[chosen] - log_factorial[total - chosen])

    every, expected = log_choose(np.array(n), np.array(fewer)), np.empty(len(counts))
    for place, (count, low, high) in enumerate(zip(counts, first, last, strict=True)):
        seen = np.arange(low, high + 1)
        weight = np.exp(log_choose(count, seen) + log_choose(n - count, fewer - seen) - every)
        expected[place] = radius[low : high + 1] @ weight
    return np.asarray(expected[inverse], dtype=np.float64)
