"""What a table says of a set of certified images: pure functions on NumPy arrays, no torch.

`radius` [images] is in full precision and 0 for abstentions; `correct` [images] is true where the certified class is
the label.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import UsageError

Floats = NDArray[np.float64]


def robust_radius(radius: ArrayLike, correct: ArrayLike) -> Floats:
    """Return each image's contribution to the average certified radius: its radius, or 0 where it is wrong."""
    return np.where(np.asarray(correct, dtype=bool), np.asarray(radius, dtype=np.float64), 0.0)


def average_certified_radius(radius: ArrayLike, correct: ArrayLike) -> float:
    """Return the ACR (Zhai et al., 2020): the mean certified radius, wrong and abstaining images counting 0.

    >>> average_certified_radius([1.0, 2.0, 3.0], [True, False, True])
    1.3333333333333333
    """
    return float(robust_radius(radius, correct).mean())


def certified_accuracy(radius: ArrayLike, correct: ArrayLike, at: ArrayLike) -> Floats:
    """Return the share of images that are right with a radius of at least `at`, for each value of it.

    >>> certified_accuracy([1.0, 2.0, 3.0], [True, False, True], [0.0, 1.0, 2.5]).round(3).tolist()
    [0.667, 0.667, 0.333]
    """
    thresholds = np.atleast_1d(np.asarray(at, dtype=np.float64))
    ranked = np.sort(np.asarray(radius, dtype=np.float64)[np.asarray(correct, dtype=bool)])
    return (len(ranked) - np.searchsorted(ranked, thresholds, side="left")) / np.size(radius)


def linf_accuracy(radius: ArrayLike, correct: ArrayLike, at: ArrayLike, dimensions: int) -> Floats:
    """Return the certified accuracy in l_inf: an l2 ball of radius R holds the cube of half-width R / sqrt(d)."""
    return certified_accuracy(radius, correct, np.asarray(at, dtype=np.float64) * math.sqrt(dimensions))


def abstention_rate(predict: ArrayLike) -> float:
    """Return the share of images on which the classifier abstained."""
    return float((np.asarray(predict) < 0).mean())


def high_probability_accuracy(accuracy: ArrayLike, images: int, alpha: float, rho: float = 0.001) -> Floats:
    """Return Cohen's lower bound, at confidence 1 - rho, of the certified accuracy free of false certificates.

    Each certificate fails with probability at most alpha; Bernstein's inequality bounds how many of them do. The 2 of
    its square root is missing in the published code, whose bound fails several times as often as rho on many images.
    """
    doubt = math.log(1 / rho)
    slack = alpha + math.sqrt(2 * alpha * (1 - alpha) * doubt / images) + doubt / (3 * images)
    return np.maximum(np.asarray(accuracy, dtype=np.float64) - slack, 0.0)


@dataclass(frozen=True)
class Estimate:
    """A mean over images with its standard error and an interval."""

    value: float
    standard_error: float
    low: float
    high: float


def estimate(values: ArrayLike, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0) -> Estimate:
    """Return the mean of per-image values with a bootstrap percentile interval over the images."""
    sample = np.asarray(values, dtype=np.float64)
    if not 0 < confidence < 1:
        raise UsageError(f"Expected `confidence` to be between 0 and 1, but got {confidence}.")
    error = float(sample.std(ddof=1) / math.sqrt(len(sample))) if len(sample) > 1 else math.nan
    # Only how often each distinct value is drawn matters, and the largest radius is drawn for many images at once.
    distinct, repeats = np.unique(sample, return_counts=True)
    generator, share = np.random.default_rng(seed), repeats / len(sample)
    means = [generator.multinomial(len(sample), share) @ distinct / len(sample) for _ in range(resamples)]
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, (tail, 1 - tail))
    return Estimate(float(sample.mean()), error, float(low), float(high))


def cluster_estimate(
    totals: ArrayLike, counts: ArrayLike, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0
) -> Estimate:
    """Return the mean over groups of their means, with an interval for images that appear in several groups.

    `totals` and `counts`, [groups, images], are the sum of an image's values in a group and how many there are. The
    bootstrap draws images, each with all its values: those of one image rise and fall together, so treating them as
    independent would promise far too much.
    """
    sums, numbers = np.asarray(totals, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    images = sums.shape[1]
    generator = np.random.default_rng(seed)
    means = []
    for _ in range(resamples):
        drawn = generator.multinomial(images, np.full(images, 1 / images))
        there = numbers @ drawn
        means.append(float((sums @ drawn / np.where(there > 0, there, np.nan)).mean()))
    tail = (1 - confidence) / 2
    spread = np.array(means)[np.isfinite(means)]
    low, high = np.quantile(spread, (tail, 1 - tail))
    value = float((sums.sum(axis=1) / numbers.sum(axis=1)).mean())
    return Estimate(value, float(spread.std(ddof=1)), float(low), float(high))


def paired_difference(
    first: tuple[ArrayLike, ArrayLike, ArrayLike], second: tuple[ArrayLike, ArrayLike, ArrayLike]
) -> Estimate:
    """Return the difference in ACR (first minus second) on the images that both have, each as (idx, radius, correct).

    The images are the same, so their difficulty cancels: the interval is far narrower than the two single ones.
    """
    (idx1, values1), (idx2, values2) = ((np.asarray(i), robust_radius(r, c)) for i, r, c in (first, second))
    _, at1, at2 = np.intersect1d(idx1, idx2, return_indices=True)
    if not len(at1):
        raise UsageError("The two results share no image, so they cannot be compared in pairs.")
    return estimate(values1[at1] - values2[at2])


def radius_grid(dataset: str | None) -> Sequence[float]:
    """Return the radii of the paper's tables for a data set.

    >>> radius_grid("imagenet")[-2:], radius_grid("cifar100")[-1], radius_grid(None)[-1]
    ([3.0, 3.5], 1.75, 2.5)
    """
    step, last = {"imagenet": (0.5, 3.5), "cifar100": (0.25, 1.75)}.get(dataset or "", (0.25, 2.5))
    return [step * i for i in range(round(last / step) + 1)]
