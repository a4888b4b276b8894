"""Metrics of certified images: pure functions on NumPy arrays, no torch.

Most functions take two arrays with one value per image: `radius` contains the certified radii in full precision, 0
where the classifier abstains, and `correct` is true where the certified class is the label. Where `correct` is
optional, it can be omitted if `radius` is the return value of `read_results` or `certify_dataset`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import UsageError, quote, takes
from smoothcert.statistics.bounds import Floats, as_floats, check_alpha, check_count, check_seed

_BLOCK = 64  # resamples converted to floating point at a time, to limit memory


class Certificates(Protocol):
    """Certification results with columns for radius and correctness, such as the return value of `read_results`."""

    @property
    def radius(self) -> Floats:
        """Certified radii."""

    @property
    def correct(self) -> NDArray[np.bool_]:
        """True where the certified class is the label."""


CertifiedRows = ArrayLike | Certificates | Sequence[Any]


def _column(results: Any, name: str) -> Any:
    return getattr(results, name) if hasattr(results, name) else [getattr(record, name) for record in results]


def _columns(radius: CertifiedRows, correct: ArrayLike | None) -> tuple[Floats, NDArray[np.bool_]]:
    if correct is None:
        try:
            radius, correct = (_column(radius, name) for name in ("radius", "correct"))
        except (AttributeError, TypeError):
            raise UsageError(
                "Expected `correct` together with an array of radii, or `radius` to be the return value of "
                f"`read_results` or `certify_dataset`, but got only {quote(radius)}."
            ) from None
    radii, right = as_floats("radius", radius), as_floats("correct", correct).astype(bool)
    if radii.ndim != 1 or radii.shape != right.shape or not len(radii):
        raise UsageError(
            "Expected `radius` and `correct` to have one value per image, for at least one image, but got shapes "
            f"{radii.shape} and {right.shape}."
        )
    return radii, right


def robust_radius(radius: CertifiedRows, correct: ArrayLike | None = None) -> Floats:
    """Return each image's contribution to the ACR: its radius, or 0 if the prediction is wrong.

    Args:
        radius: Certified radii, [images]; or only the return value of `read_results` or `certify_dataset`.
        correct: True where the certified class is the label, [images].

    Returns:
        The radii, [images].

    Example:
        >>> robust_radius([1.0, 2.0], [True, False]).tolist()
        [1.0, 0.0]
    """
    radii, right = _columns(radius, correct)
    return np.where(right, radii, 0.0)


def average_certified_radius(radius: CertifiedRows, correct: ArrayLike | None = None) -> float:
    """Return the average certified radius, ACR (Zhai et al., 2020).

    Args:
        radius: Certified radii, [images]; or only the return value of `read_results` or `certify_dataset`.
        correct: True where the certified class is the label, [images].

    Returns:
        The mean radius, where wrong predictions and abstentions count as 0.

    Example:
        >>> average_certified_radius([1.0, 2.0, 3.0], [True, False, True])
        1.3333333333333333
    """
    return float(robust_radius(radius, correct).mean())


def certified_accuracy(radius: CertifiedRows, correct: ArrayLike | None = None, at: ArrayLike = 0.0) -> Floats:
    """Return the share of images classified correctly with a radius of at least `at`.

    Args:
        radius: Certified radii, [images]; or only the return value of `read_results` or `certify_dataset`.
        correct: True where the certified class is the label, [images].
        at: One or more radii.

    Returns:
        The certified accuracy at each radius of `at`, between 0 and 1.

    Example:
        >>> certified_accuracy([1.0, 2.0, 3.0], [True, False, True], [0.0, 1.0, 2.5]).round(3).tolist()
        [0.667, 0.667, 0.333]
    """
    thresholds = np.atleast_1d(as_floats("at", at))
    radii, right = _columns(radius, correct)
    ranked = np.sort(radii[right])
    return (len(ranked) - np.searchsorted(ranked, thresholds, side="left")) / len(radii)


def linf_accuracy(radius: ArrayLike, correct: ArrayLike, at: ArrayLike, dimensions: int) -> Floats:
    """Return the certified accuracy in the l_inf norm, from l2 radii.

    An l2 ball of radius R contains the cube of half-width R / sqrt(dimensions).

    Args:
        radius: Certified l2 radii, [images].
        correct: True where the certified class is the label, [images].
        at: One or more l_inf radii.
        dimensions: Number of values per input.

    Returns:
        The certified accuracy at each radius of `at`, between 0 and 1.

    Raises:
        UsageError: If an argument is invalid.

    Example:
        >>> linf_accuracy([1.0, 2.0], [True, True], [0.25, 0.5], dimensions=16).tolist()
        [1.0, 0.5]
    """
    check_count("dimensions", dimensions)
    with np.errstate(over="ignore"):
        at = as_floats("at", at) * math.sqrt(dimensions)
    return certified_accuracy(radius, correct, at)


def abstention_rate(predict: ArrayLike) -> float:
    """Return the share of images on which the smoothed classifier abstains.

    Args:
        predict: Certified classes, -1 for abstentions, [images].

    Returns:
        The share, between 0 and 1.

    Example:
        >>> abstention_rate([3, -1, 0, 7])
        0.25
    """
    return float((as_floats("predict", predict) < 0).mean())


def high_probability_accuracy(accuracy: ArrayLike, images: int, alpha: float, rho: float = 0.001) -> Floats:
    """Return a lower bound on the certified accuracy, allowing for false certificates (Cohen et al., 2019).

    Each certificate is false with probability at most alpha, and Bernstein's inequality bounds the number of false
    certificates. The code published with the paper lacks the factor 2 under the square root, so with many images its
    bound fails several times as often as `rho` allows.

    Args:
        accuracy: Certified accuracy, between 0 and 1.
        images: Number of images.
        alpha: Maximum probability that a certificate is false.
        rho: Maximum probability that the bound does not hold.

    Returns:
        The bound at confidence 1 - rho, at least 0.

    Raises:
        UsageError: If an argument is invalid.

    Example:
        >>> float(high_probability_accuracy(0.6, images=500, alpha=0.001).round(4))
        0.5891
    """
    check_count("images", images)
    check_alpha(alpha)
    check_alpha(rho, "rho")
    surprise = math.log(1 / rho)
    slack = alpha + math.sqrt(2 * alpha * (1 - alpha) * surprise / images) + surprise / (3 * images)
    return np.maximum(as_floats("accuracy", accuracy) - slack, 0.0)


@dataclass(frozen=True)
class Estimate:
    """A mean over images with its standard error and a confidence interval.

    Attributes:
        value: The mean.
        standard_error: Standard error of the mean, NaN for a single image.
        low: Lower end of the interval.
        high: Upper end of the interval.

    Example:
        >>> Estimate(value=0.5, standard_error=0.1, low=0.3, high=0.7).value
        0.5
    """

    value: float
    standard_error: float
    low: float
    high: float


def estimate(values: ArrayLike, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0) -> Estimate:
    """Return the mean of per-image values with a bootstrap percentile interval over the images.

    Args:
        values: One value per image.
        confidence: Confidence level of the interval.
        resamples: Number of bootstrap samples.
        seed: Seed of the bootstrap.

    Returns:
        The mean, its standard error and the interval.

    Raises:
        UsageError: If an argument is invalid.

    Example:
        >>> found = estimate([0.0, 1.0, 1.0, 2.0])
        >>> found.value, round(found.standard_error, 3), found.low, found.high
        (1.0, 0.408, 0.25, 1.75)
    """
    sample = as_floats("values", values)
    if sample.ndim != 1 or not len(sample):
        raise UsageError(f"Expected `values` to have one value per image, but got shape {sample.shape}.")
    _check_bootstrap(confidence, resamples, seed)
    error = float(sample.std(ddof=1) / math.sqrt(len(sample))) if len(sample) > 1 else math.nan
    ordered = np.sort(sample)  # so that the interval does not depend on the order of the images
    means = np.concatenate([block @ ordered for block in _resample_blocks(len(sample), resamples, seed)]) / len(sample)
    return Estimate(float(sample.mean()), error, *_percentiles(means, confidence))


def cluster_estimate(
    totals: ArrayLike, counts: ArrayLike, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0
) -> Estimate:
    """Return the mean of the group means, with an interval that allows for images that appear in several groups.

    The bootstrap draws images, each with its values in all groups. Values of the same image are correlated, so an
    interval that treats them as independent would be far too narrow.

    Args:
        totals: Sum of the values of each image in each group, [groups, images].
        counts: Number of values in each of these sums, [groups, images].
        confidence: Confidence level of the interval.
        resamples: Number of bootstrap samples.
        seed: Seed of the bootstrap.

    Returns:
        The mean, its standard error and the interval.

    Raises:
        UsageError: If the shapes differ, or an argument is out of range.

    Example:
        >>> cluster_estimate([[1.0, 3.0], [2.0, 4.0]], [[1, 1], [1, 1]]).value
        2.5
    """
    sums, numbers = as_floats("totals", totals), as_floats("counts", counts)
    if sums.ndim != 2 or sums.shape != numbers.shape or not sums.size:
        shapes = f"{sums.shape} and {numbers.shape}"
        raise UsageError(f"Expected `totals` and `counts` to have the same shape [groups, images], but got {shapes}.")
    _check_bootstrap(confidence, resamples, seed)
    means = []
    for drawn in _resample_blocks(sums.shape[1], resamples, seed):
        present = drawn @ numbers.T
        means.append((drawn @ sums.T / np.where(present > 0, present, np.nan)).mean(axis=1))
    spread = np.concatenate(means)
    spread = spread[np.isfinite(spread)]
    value = float((sums.sum(axis=1) / numbers.sum(axis=1)).mean())
    return Estimate(value, float(spread.std(ddof=1)), *_percentiles(spread, confidence))


@lru_cache(maxsize=4)
def _resamples(images: int, number: int, seed: int) -> NDArray[np.uint8]:
    """Return how many times each bootstrap resample contains each image, [number, images]."""
    generator = np.random.default_rng(seed)
    drawn = np.empty((number, images), dtype=np.uint8)  # the chance of drawing one image 256 times is negligible
    for row in drawn:
        row[:] = np.bincount(generator.integers(0, images, images), minlength=images)
    drawn.flags.writeable = False
    return drawn


def _resample_blocks(images: int, number: int, seed: int) -> Iterator[Floats]:
    drawn = _resamples(images, int(number), int(seed))
    for start in range(0, number, _BLOCK):
        yield drawn[start : start + _BLOCK].astype(np.float64)


def _percentiles(means: Floats, confidence: float) -> tuple[float, float]:
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, (tail, 1 - tail))
    return float(low), float(high)


def _check_bootstrap(confidence: float, resamples: int, seed: int) -> None:
    check_alpha(confidence, "confidence")
    check_count("resamples", resamples)
    check_seed(seed)


@takes(first=(tuple, list), second=(tuple, list))
def paired_difference(
    first: tuple[ArrayLike, ArrayLike, ArrayLike], second: tuple[ArrayLike, ArrayLike, ArrayLike]
) -> Estimate:
    """Return the difference in ACR, first minus second, on the images common to both results.

    Both ACRs are means over the same images, so differences in difficulty between images cancel. The interval is
    therefore usually much narrower than the intervals of the two ACRs.

    Args:
        first: Indices, radii and correctness of the first results, each [images].
        second: Indices, radii and correctness of the second results.

    Returns:
        The difference, its standard error and a 95% interval.

    Raises:
        UsageError: If an argument is invalid, or the results have no image in common.

    Example:
        >>> first = [0, 1, 2], [1.0, 0.5, 2.0], [True, True, True]
        >>> second = [1, 2, 3], [0.25, 1.5, 1.0], [True, True, False]
        >>> paired_difference(first, second).value
        0.375
    """
    for name, results in (("first", first), ("second", second)):
        if len(results) != 3 or as_floats(name, results[0]).shape != as_floats(name, results[1]).shape:
            raise UsageError(
                f"Expected `{name}` to be (indices, radii, correctness) of equal lengths, but got {quote(results)}."
            )
    (idx1, values1), (idx2, values2) = ((np.asarray(i), robust_radius(r, c)) for i, r, c in (first, second))
    _, at1, at2 = np.intersect1d(idx1, idx2, return_indices=True)
    if not len(at1):
        raise UsageError("Expected `first` and `second` to have images in common, but they have none.")
    return estimate(values1[at1] - values2[at2])


@takes(dataset=(str, type(None)))
def radius_grid(dataset: str | None) -> Sequence[float]:
    """Return the radii at which the CAT-RS paper (Jeong et al., 2023) lists certified accuracies on a dataset.

    Args:
        dataset: Name of the dataset, or None if it is unknown.

    Returns:
        Equally spaced radii, starting at 0.

    Example:
        >>> radius_grid("imagenet")[-2:], radius_grid("cifar100")[-1], radius_grid(None)[-1]
        ([3.0, 3.5], 1.75, 2.5)
    """
    step, last = {"imagenet": (0.5, 3.5), "cifar100": (0.25, 1.75)}.get(dataset or "", (0.25, 2.5))
    return [step * i for i in range(round(last / step) + 1)]
