"""Certify and predict whole datasets.

The rows of the results do not depend on how a job is batched, sharded or interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from torch import Tensor

from smoothcert.certification.job import Progress, prepare_job
from smoothcert.certification.protocol import SamplingProtocol
from smoothcert.certification.sequential import certify_until_decided
from smoothcert.data.user_data import Labeled
from smoothcert.errors import UsageError, quote, takes
from smoothcert.philox import Purpose
from smoothcert.results.records import Prediction, Record
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.statistics import bounds
from smoothcert.statistics.certify import bound_uniforms, certify_votes
from smoothcert.statistics.stopping import StopRule


@takes(out=(str, Path, type(None)), bound=str, model=(Mapping, type(None)), on_progress=(Callable, type(None)))
def certify_dataset(
    classifier: SmoothedClassifier,
    data: Labeled,
    out: str | Path | None = None,
    *,
    n0: int = 100,
    n: int = 100_000,
    alpha: float = 0.001,
    seed: int = 0,
    bound: str = "one-sided",
    stop: StopRule | None = None,
    indices: Sequence[int] | None = None,
    batch: int | None = None,
    model: Mapping[str, Any] | None = None,
    on_progress: Callable[[Progress[Record]], None] | None = None,
) -> list[Record]:
    """Certify images of a dataset.

    With `out`, results are written as they are computed: a TSV file with one row per image, the votes beside it, and a
    JSON sidecar with all settings. The same call resumes an interrupted run; if the file was made with different
    settings, the call raises an error.

    Args:
        classifier: The smoothed classifier.
        data: The images, as `load_dataset` returns them; a pair (inputs, labels) of arrays or tensors; or a
            `torch.utils.data.Dataset` or DataLoader of such pairs. uint8 inputs are scaled to [0, 1]; floats are not.
        out: The results file, or None to write nothing.
        n0: Number of noise samples that select the class.
        n: Number of fresh noise samples that bound the probability of the class; with `stop`, the maximum per image.
        alpha: Maximum probability that a certificate is false.
        seed: Seed of the noise. A noise sample is a function of (seed, image index, sample number).
        bound: `one-sided` (Cohen et al., 2019); `randomised`, a tighter bound that uses a random number per image; or
            `two-sided`, which also bounds the probability of every other class.
        stop: A rule of `smoothcert.stopping` that ends the sampling of an image early, or None for a fixed n. The votes
            at every look (an interim analysis) are stored beside the results.
        indices: Indices of the images to certify (default: all; see `select`).
        batch: Number of noisy samples in memory at once (default: chosen for the device).
        model: Description of the base classifier for the sidecar, including the `sha256` of its weights file, if any.
            Without a hash, a module is identified by a fingerprint of its weights and settings.
        on_progress: Called with a `Progress` after every group of images.

    Returns:
        All records, including those already in a resumed file. With several processes, only rank 0 returns them; the
        others return an empty list.

    Raises:
        UsageError: If an argument is invalid, or `out` was made with different settings.

    Example:
        >>> import smoothcert
        >>> data = smoothcert.load_dataset("mnist-mini", "test")
        >>> model = smoothcert.load_pretrained("mnist-catrs-0.50").model
        >>> smoothed = smoothcert.SmoothedClassifier(model, sigma=0.5)
        >>> records = smoothcert.certify_dataset(smoothed, data, n=100, indices=[0, 1])
        >>> tuple(record.predict == record.label for record in records)
        (True, True)
    """
    protocol = SamplingProtocol(n0=n0, n=n, alpha=alpha, seed=seed, bound=bound, stop=stop)
    job = prepare_job(classifier, data, out, indices, model, protocol.settings())
    if stop:
        return certify_until_decided(job, protocol, batch, on_progress)

    def certify(images: Tensor, chosen: list[int], labels: list[int]) -> Iterable[Record]:
        started = perf_counter()
        votes = classifier.count_stages(images, protocol.edges, seed=protocol.seed, index=chosen, batch=batch)
        selection, estimation = votes[:, 0].numpy(), votes[:, 1].numpy()
        uniforms = bound_uniforms(protocol.seed, chosen) if protocol.bound == "randomised" else None
        found = certify_votes(selection, estimation, classifier.noise, protocol.alpha, protocol.bound, uniforms)
        seconds = (perf_counter() - started) / len(chosen)
        rows = zip(chosen, labels, found.prediction, found.radius, votes.tolist(), strict=True)
        for index, label, predict, radius, counts in rows:
            yield Record(index, label, int(predict), float(radius), seconds, *counts)

    return job.evaluate(Record, protocol.edges[-1], certify, on_progress)


def certify_sequentially(
    classifier: SmoothedClassifier, data: Labeled, out: str | Path | None = None, *, rule: StopRule, **options: Any
) -> list[Record]:
    """Certify images of a dataset, sampling each image only until `rule` needs no more samples.

    Alias of `certify_dataset(classifier, data, out, stop=rule, **options)`.

    Args:
        classifier: The smoothed classifier, with `num_classes` set.
        data: The images, as `load_dataset` returns them.
        out: The results file, or None to write nothing.
        rule: A rule of `smoothcert.stopping`.
        **options: Other arguments of `certify_dataset`.

    Returns:
        The records of all images.

    Raises:
        UsageError: If an argument is invalid, or `out` was made with different settings.

    Example:
        >>> import smoothcert
        >>> data = smoothcert.load_dataset("mnist-mini", "test")
        >>> model = smoothcert.load_pretrained("mnist-catrs-0.50").model
        >>> smoothed = smoothcert.SmoothedClassifier(model, sigma=0.5, num_classes=10)
        >>> rule = smoothcert.stopping.RadiusStop(radius=0.25)
        >>> records = smoothcert.certify_sequentially(smoothed, data, rule=rule, n=1000, indices=[0])
        >>> records[0].radius >= 0.25, sum(records[0].estimation) < 1000
        (True, True)
    """
    if rule is None:
        raise UsageError("Expected `rule` to be a rule of `smoothcert.stopping`, such as TableStop(), but got None.")
    return certify_dataset(classifier, data, out, stop=rule, **options)


@takes(out=(str, Path, type(None)), model=(Mapping, type(None)), purpose=int, on_progress=(Callable, type(None)))
def predict_dataset(
    classifier: SmoothedClassifier,
    data: Labeled,
    out: str | Path | None = None,
    *,
    n: int = 1000,
    alpha: float = 0.001,
    seed: int = 0,
    indices: Sequence[int] | None = None,
    batch: int | None = None,
    model: Mapping[str, Any] | None = None,
    purpose: Purpose = Purpose.PREDICT,
    on_progress: Callable[[Progress[Prediction]], None] | None = None,
) -> list[Prediction]:
    """Classify images of a dataset by n votes each, without radii.

    Args:
        classifier: The smoothed classifier.
        data: The images, of any kind that `certify_dataset` accepts.
        out: The results file, or None to write nothing. See `certify_dataset`.
        n: Number of noise samples per image.
        alpha: Maximum probability of predicting a class other than the most likely class under noise. The prediction is
            -1 if the votes do not settle the class at confidence 1 - alpha.
        seed: Seed of the noise.
        indices: Indices of the images to predict (default: all).
        batch: Number of noisy samples in memory at once (default: chosen for the device).
        model: Description of the base classifier for the sidecar.
        purpose: Purpose of the votes; votes for different purposes use different noise.
        on_progress: Called with a `Progress` after every group of images.

    Returns:
        All predictions, including those already in a resumed file. With several processes, only rank 0 returns
        them; the others return an empty list.

    Raises:
        UsageError: If an argument is invalid, or `out` was made with different settings.

    Example:
        >>> import smoothcert
        >>> data = smoothcert.load_dataset("mnist-mini", "test")
        >>> model = smoothcert.load_pretrained("mnist-catrs-0.50").model
        >>> smoothed = smoothcert.SmoothedClassifier(model, sigma=0.5)
        >>> predictions = smoothcert.predict_dataset(smoothed, data, n=20, indices=[0, 1])
        >>> tuple(prediction.predict for prediction in predictions)
        (7, 2)
    """
    bounds.check_alpha(alpha)
    bounds.check_seed(seed)
    bounds.check_count("n", n)
    if purpose not in tuple(Purpose):
        raise UsageError(f"Expected `purpose` to be a `Purpose`, but got {quote(purpose)}.")
    if purpose == Purpose.PREDICT:  # other purposes, such as soft labels, need only votes
        bounds.check_prediction(n, alpha)
    settings = {"task": "predict", "n": n, "alpha": alpha, "seed": seed}
    job = prepare_job(classifier, data, out, indices, model, settings)

    def predict(images: Tensor, chosen: list[int], labels: list[int]) -> Iterable[Prediction]:
        started = perf_counter()
        votes = classifier.count_stages(images, (0, n), seed=seed, index=chosen, batch=batch, purpose=purpose)[:, 0]
        classes = bounds.predict_counts(votes.numpy(), alpha)
        seconds = (perf_counter() - started) / len(chosen)
        for index, label, predicted, counts in zip(chosen, labels, classes, votes.tolist(), strict=True):
            yield Prediction(index, label, int(predicted), seconds, counts)

    return job.evaluate(Prediction, n, predict, on_progress)
