"""From class counts to certificates: the bounds one may choose, at one look or several. No torch.

`one-sided` is CERTIFY's bound, of the class alone. `randomised` makes it exact with one uniform number an image.
`two-sided` bounds the class and every other; it also answers for the k most likely classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from smoothcert.errors import UsageError, unknown_name
from smoothcert.statistics import bounds
from smoothcert.statistics.bounds import ABSTAIN, Floats, failure_upper_bound
from smoothcert.statistics.look_plan import Plan, fixed_plan
from smoothcert.statistics.noise import Noise

BOUNDS = ("one-sided", "randomised", "two-sided")
Certificates = tuple[NDArray[np.int64], Floats]
"""Predictions, -1 where nothing is certified, and radii."""


def certify_votes(
    selection: ArrayLike,
    estimation: ArrayLike,
    noise: Noise,
    alpha: float,
    bound: str = "one-sided",
    uniforms: ArrayLike | None = None,
) -> Certificates:
    """Certify from the class counts [images, classes] of both stages, looked at once."""
    if noise.name == "gaussian" and bound == "one-sided":
        return bounds.certify_counts(selection, estimation, noise.sigma, alpha)[:2]
    counts = np.asarray(estimation)[:, None]
    plan = fixed_plan(int(counts[0].sum()), alpha)
    reached = np.ones(len(counts), dtype=np.int64)
    chosen = np.argmax(np.asarray(selection), axis=-1)
    return certify_looks(chosen, counts, reached, plan, noise, bound, uniforms=uniforms)


def certify_looks(
    chosen: ArrayLike,
    counts: ArrayLike,
    reached: ArrayLike,
    plan: Plan,
    noise: Noise,
    bound: str = "one-sided",
    *,
    top: int = 1,
    uniforms: ArrayLike | None = None,
) -> Certificates:
    """Certify the chosen classes from the counts [images, looks, classes] that each look had seen.

    Only the first `reached` [images] looks of an image are there. The radius is the best over them.
    """
    check_bound(bound, top, plan)
    classes, votes = np.asarray(chosen), np.asarray(counts)
    best = np.full(len(votes), -1.0)
    for look in range(votes.shape[1]):
        there = np.flatnonzero(np.asarray(reached) > look)
        if len(there):
            drawn = None if uniforms is None else np.asarray(uniforms)[there]
            radius = _look_radius(classes[there], votes[there, look], plan, look, noise, bound, top, drawn)
            best[there] = np.maximum(best[there], radius)
    certain = best >= 0
    return np.where(certain, classes, ABSTAIN).astype(np.int64), np.where(certain, best, 0.0)


def check_bound(bound: str, top: int, plan: Plan) -> None:
    """Refuse a bound that does not exist or does not go with the rest."""
    if bound not in BOUNDS:
        raise unknown_name("bound", bound, BOUNDS)
    if top < 1:
        raise UsageError(f"Expected `--top-k` to be at least 1, but got {top}.")
    if top > 1 and bound != "two-sided":
        raise UsageError("`--top-k` compares with every other class: choose `--bound two-sided`.")
    if plan.confidence != "union" and bound != "one-sided":
        raise UsageError(f"A {plan.confidence} sequence has a bound of its own; leave `--bound` away.")


def _look_radius(
    chosen: NDArray[np.int64],
    votes: NDArray[np.int64],
    plan: Plan,
    look: int,
    noise: Noise,
    bound: str,
    top: int,
    uniforms: ArrayLike | None,
) -> Floats:
    """Return the radii that one look proves, negative where it proves nothing."""
    trials, alpha = plan.looks[look], plan.alphas[look]
    if np.any(votes.sum(axis=-1) != trials):
        raise UsageError(f"Expected {trials:,} votes of every image at look {look + 1}.")
    successes = np.take_along_axis(votes, chosen[:, None], axis=1)[:, 0]
    if bound == "two-sided":
        return _two_sided_radius(chosen, votes, trials, alpha, noise, top)
    if bound == "randomised":
        if uniforms is None:
            raise UsageError("The randomised bound needs one uniform number an image.")
        failure = randomised_bound(successes, trials, alpha, uniforms)
    else:
        failure = plan.failure(successes, look)
    return noise.gap_radius(failure, failure) + 0.0  # no negative zero


def _two_sided_radius(
    chosen: NDArray[np.int64], votes: NDArray[np.int64], trials: int, alpha: float, noise: Noise, top: int
) -> Floats:
    """Return the radius within which the class stays among the `top` most likely.

    Half of alpha goes to the class, the rest to all others in equal parts: bounding only the observed runner-up would
    be choosing after looking. The `top`-th of the others has at most the same part of what the class leaves.
    """
    others = votes.shape[1] - 1
    if top > others:
        raise UsageError(f"Among {others + 1} classes, `--top-k` is at most {others}.")
    successes = np.take_along_axis(votes, chosen[:, None], axis=1)[:, 0]
    failure = failure_upper_bound(successes, trials, alpha / 2)
    share = failure_upper_bound(trials - votes, trials, alpha / (2 * others))
    np.put_along_axis(share, chosen[:, None], -1.0, axis=1)
    rival = np.minimum(np.sort(share, axis=1)[:, -top], failure / top)
    return noise.gap_radius(failure, rival) + 0.0


def randomised_bound(successes: ArrayLike, trials: int, alpha: float, uniforms: ArrayLike) -> Floats:
    """Return the upper bound of the failure probability that is exact at 1 - alpha, given one uniform w an image.

    It solves P(successes > k) + w P(successes = k) = alpha, between the Clopper-Pearson bounds of k and of k + 1. With
    all successes it could reach 0; there it is kept at the ordinary bound, so that no radius exceeds the ordinary
    largest.
    """
    k, w = np.asarray(successes, dtype=np.float64), np.asarray(uniforms, dtype=np.float64)
    high = failure_upper_bound(k, trials, alpha)
    low = failure_upper_bound(np.minimum(k + 1, trials), trials, alpha)
    inner = (k > 0) & (k < trials)
    a, b = np.where(inner, trials - k, 1.0), np.where(inner, k + 1, 1.0)
    for _ in range(64):
        middle = (low + high) / 2
        more = special.betaincc(a, b, middle)  # P(successes > k)
        at_least = special.betaincc(a + 1, b - 1 + (b <= 1), middle)
        rejected = more + w * (at_least - more) <= alpha
        low, high = np.where(rejected, low, middle), np.where(rejected, middle, high)
    return np.where(inner, high, failure_upper_bound(k, trials, alpha))


def bound_uniforms(seed: int, indices: ArrayLike) -> Floats:
    """Return the randomised bound's number for each image: a function of the seed and the image's index alone."""
    words = [int(np.random.Philox(key=seed, counter=int(index)).random_raw()) for index in np.asarray(indices)]
    return np.array([(word >> 11) * 2.0**-53 for word in words])
