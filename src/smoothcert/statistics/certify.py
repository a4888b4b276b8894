"""Compute certificates from class counts, at one look (interim analysis) or at several. Does not import torch.

Three bounds are available. `one-sided`, the bound of Cohen et al. (2019), bounds the probability of the selected class.
`randomised` bounds the same probability more tightly, with the help of one uniform random number per image. `two-sided`
bounds the probabilities of all classes, so it can also certify that a class stays among the `top` most likely classes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from smoothcert.errors import UsageError, unknown_name
from smoothcert.statistics.bounds import ABSTAIN, Floats, Ints, failure_upper_bound
from smoothcert.statistics.look_plan import Plan
from smoothcert.statistics.noise import Noise

BOUNDS = ("one-sided", "randomised", "two-sided")


class Certified(NamedTuple):
    """Certificates of several images: predictions (-1 for an abstention), radii and bounds on the class probability.

    `p_lower` is a lower bound on the probability of the selected class, also for abstentions.
    """

    prediction: Ints
    radius: Floats
    p_lower: Floats


def check_bound(bound: str, top: int = 1) -> None:
    """Raise if the bound is unknown, or if `top` is invalid or not supported by the bound."""
    if bound not in BOUNDS:
        raise unknown_name("bound", bound, BOUNDS)
    if top < 1:
        raise UsageError(f"Expected `top` to be at least 1, but got {top}.")
    if top > 1 and bound != "two-sided":
        raise UsageError("`top` > 1 requires `bound='two-sided'`, which bounds the probabilities of all classes.")


def certify_votes(
    selection: ArrayLike,
    estimation: ArrayLike,
    noise: Noise,
    alpha: float,
    bound: str = "one-sided",
    uniforms: Floats | None = None,
) -> Certified:
    """Certify images from the class counts [images, classes] of selection and estimation, with a single look.

    The bound `randomised` needs `uniforms`, one random number per image (see `bound_uniforms`).
    """
    chosen, votes = np.argmax(np.asarray(selection), axis=-1), np.asarray(estimation)
    radius, failure = _radius(chosen, votes, alpha, noise, bound, 1, uniforms)
    return _certified(chosen, radius, failure)


def certify_looks(
    chosen: ArrayLike,
    counts: ArrayLike,
    reached: ArrayLike,
    plan: Plan,
    noise: Noise,
    bound: str = "one-sided",
    *,
    top: int = 1,
    uniforms: Floats | None = None,
) -> Certified:
    """Certify the class `chosen` for each image from its cumulative class counts, [images, looks, classes].

    `reached` [images] is the number of looks taken at each image. The radius of an image is the largest over its looks.
    The bound `randomised` needs `uniforms`, one random number per image (see `bound_uniforms`).
    """
    check_bound(bound, top)
    classes, votes = np.asarray(chosen), np.asarray(counts)
    best, least = np.full(len(votes), -1.0), np.ones(len(votes))
    for look, (samples, alpha) in enumerate(zip(plan.looks, plan.alphas, strict=True)):
        there = np.flatnonzero(np.asarray(reached) > look)
        if not len(there):
            break
        seen = votes[there, look]
        if np.any(seen.sum(axis=-1) != samples):
            other = int(seen.sum(axis=-1)[seen.sum(axis=-1) != samples][0])
            raise UsageError(f"Expected {samples:,} votes per image at look {look + 1}, but got {other:,}.")
        drawn = None if uniforms is None else uniforms[there]
        radius, failure = _radius(classes[there], seen, alpha, noise, bound, top, drawn)
        best[there] = np.maximum(best[there], radius)
        least[there] = np.minimum(least[there], failure)
    return _certified(classes, best, least)


def _certified(chosen: Ints, radius: Floats, failure: Floats) -> Certified:
    certain = radius >= 0
    return Certified(np.where(certain, chosen, ABSTAIN).astype(np.int64), np.where(certain, radius, 0.0), 1.0 - failure)


def _radius(
    chosen: Ints, votes: Ints, alpha: float, noise: Noise, bound: str, top: int, uniforms: Floats | None
) -> tuple[Floats, Floats]:
    """Return radii (negative where nothing is certified) and upper bounds on the failure probability."""
    trials = votes.sum(axis=-1)
    successes = np.take_along_axis(votes, chosen[:, None], axis=1)[:, 0]
    if bound == "two-sided":
        failure = failure_upper_bound(successes, trials, alpha / 2)
        rival = _rival_bound(chosen, votes, trials, alpha, failure, top)
    elif bound == "randomised":
        assert uniforms is not None
        failure = rival = randomized_bound(successes, trials, alpha, uniforms)
    else:
        failure = rival = failure_upper_bound(successes, trials, alpha)
    return noise.gap_radius(failure, rival) + 0.0, failure  # + 0.0: no negative zero


def _rival_bound(chosen: Ints, votes: Ints, trials: Ints, alpha: float, failure: Floats, top: int) -> Floats:
    """Return an upper bound on the probability of the `top`-th most likely class other than the chosen class.

    Half of alpha is spent on the chosen class, and the other half is shared equally by all other classes. Bounding only
    the observed runner-up would be invalid, since the same votes would both choose and bound it. The probability of the
    `top`-th most likely other class is at most 1 / `top` times the failure probability.
    """
    others = votes.shape[1] - 1
    if top > others:
        raise UsageError(f"Expected `top` to be at most {others} with {others + 1} classes, but got {top}.")
    share = failure_upper_bound(trials[:, None] - votes, trials[:, None], alpha / (2 * others))
    np.put_along_axis(share, chosen[:, None], -1.0, axis=1)
    return np.minimum(np.sort(share, axis=1)[:, -top], failure / top)


def randomized_bound(successes: ArrayLike, trials: ArrayLike, alpha: float, uniforms: ArrayLike) -> Floats:
    """Return a randomized upper bound on the failure probability, tighter than the Clopper-Pearson bound.

    With k = `successes` and w = `uniforms`, the bound is the failure probability at which P(more than k successes) +
    w P(exactly k successes) = alpha. Its confidence is exactly 1 - alpha, and it lies between the Clopper-Pearson
    bounds for k and k + 1 successes. For unanimous votes, however, this bound could be 0, so the Clopper-Pearson bound
    is returned instead, and no radius exceeds `largest_radius`.
    """
    k, w = np.asarray(successes, dtype=np.float64), np.asarray(uniforms, dtype=np.float64)
    n = np.broadcast_to(np.asarray(trials, dtype=np.float64), k.shape)
    clopper_pearson = high = failure_upper_bound(k, n, alpha)
    low = failure_upper_bound(np.minimum(k + 1, n), n, alpha)
    inner = (k > 0) & (k < n)
    a, b = np.where(inner, n - k, 1.0), np.where(inner, k + 1, 1.0)
    for _ in range(64):
        middle = (low + high) / 2
        more = special.betaincc(a, b, middle)  # P(successes > k)
        at_least = special.betaincc(a + 1, b - 1 + (b <= 1), middle)
        rejected = more + w * (at_least - more) <= alpha
        low, high = np.where(rejected, low, middle), np.where(rejected, middle, high)
    return np.where(inner, high, clopper_pearson)


def bound_uniforms(seed: int, indices: ArrayLike) -> Floats:
    """Return a uniform random number per image for the randomized bound; it depends only on seed and image index."""
    words = [int(np.random.Philox(key=seed, counter=int(index)).random_raw()) for index in np.asarray(indices)]
    return np.array([(word >> 11) * 2.0**-53 for word in words])
