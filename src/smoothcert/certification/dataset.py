"""Certifying and predicting whole data sets: resumable, shardable, and the same rows however it is run."""

from __future__ import annotations

import operator
import reprlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from smoothcert.certification.model_hash import fingerprint_model
from smoothcert.data.image_data import ImageData
from smoothcert.dataset_names import classes_of, dimensions_of
from smoothcert.distributed.ranks import current_ranks
from smoothcert.errors import UsageError
from smoothcert.philox import Purpose
from smoothcert.results.records import Prediction, Record
from smoothcert.results.writer import ResultWriter
from smoothcert.runtime.environment import describe_environment, describe_function
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.counting import inputs_at_once
from smoothcert.statistics import bounds
from smoothcert.statistics.certify import bound_uniforms, certify_votes, check_bound
from smoothcert.statistics.look_plan import fixed_plan

R = TypeVar("R", Record, Prediction)
_MOST_VALUES = 1 << 28  # of the images in memory at once, as floats


@dataclass(frozen=True)
class Progress(Generic[R]):
    """How far a run is: images done of all, and the records just made with the seconds they took."""

    done: int
    total: int
    records: Sequence[R]
    seconds: float


def certify_dataset(
    classifier: SmoothedClassifier,
    data: ImageData,
    out: str | Path | None = None,
    *,
    n0: int = 100,
    n: int = 100_000,
    alpha: float = 0.001,
    seed: int = 0,
    indices: Sequence[int] | None = None,
    batch: int | None = None,
    model: Mapping[str, Any] | None = None,
    bound: str = "one-sided",
    on_progress: Callable[[Progress[Record]], None] | None = None,
) -> list[Record]:
    """Certify images of a data set, into a results file if `out` is given; return the records made now.

    A file that was interrupted is continued, one made with other settings is refused. `indices` chooses images (all
    by default; see `select`), `batch` bounds the noisy samples in memory, and `model` describes the base classifier
    in the sidecar: with the `sha256` of its file, or else a module is known by a hash
    (`smoothcert.certification.model_hash`), and a function by what you say of it.
    `bound` is one of `smoothcert.statistics.certify.BOUNDS`.
    """
    _check_classifier(classifier)
    bounds.check_budget(n0, n, alpha, bound)
    bounds.check_seed(seed)
    check_bound(bound, 1, fixed_plan(n, alpha))

    def certify(images: Tensor, chosen: list[int], labels: list[int]) -> Iterable[Record]:
        started = time.perf_counter()
        votes = classifier.count_stages(images, (0, n0, n0 + n), seed=seed, index=chosen, batch=batch)
        drawn = bound_uniforms(seed, chosen) if bound == "randomised" else None
        stages = votes.numpy()
        found = certify_votes(stages[:, 0], stages[:, 1], classifier.noise, alpha, bound, drawn)
        seconds = (time.perf_counter() - started) / len(chosen)
        for index, label, predict, radius, counts in zip(chosen, labels, *found, votes.tolist(), strict=True):
            yield Record(index, label, int(predict), float(radius), seconds, *counts)

    settings = {"task": "certify", "sigma": classifier.sigma, "n0": n0, "n": n, "alpha": alpha, "seed": seed}
    settings |= {} if bound == "one-sided" else {"bound": bound}
    return evaluate(Record, certify, classifier, data, out, settings, n0 + n, indices, model, on_progress)


def predict_dataset(
    classifier: SmoothedClassifier,
    data: ImageData,
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
    """Predict images of a data set with n votes each; otherwise as `certify_dataset`.

    `purpose` names the noise together with the seed.
    """
    _check_classifier(classifier)
    bounds.check_alpha(alpha)
    bounds.check_seed(seed)
    bounds.check_count("n", n)
    if purpose == Purpose.PREDICT:  # soft labels are the votes, whatever the answer
        bounds.check_prediction(n, alpha)

    def predict(images: Tensor, chosen: list[int], labels: list[int]) -> Iterable[Prediction]:
        started = time.perf_counter()
        stages = classifier.count_stages(images, (0, n), seed=seed, index=chosen, batch=batch, purpose=purpose)
        classes = bounds.predict_counts(stages[:, 0].numpy(), alpha)
        seconds = (time.perf_counter() - started) / len(chosen)
        for index, label, predicted, counts in zip(chosen, labels, classes, stages[:, 0].tolist(), strict=True):
            yield Prediction(index, label, int(predicted), seconds, counts)

    settings = {"task": "predict", "sigma": classifier.sigma, "n": n, "alpha": alpha, "seed": seed}
    return evaluate(Prediction, predict, classifier, data, out, settings, n, indices, model, on_progress)


def evaluate(
    kind: type[R],
    make: Callable[[Tensor, list[int], list[int]], Iterable[R]],
    classifier: SmoothedClassifier,
    data: ImageData,
    out: str | Path | None,
    settings: dict[str, Any],
    samples: int,
    indices: Sequence[int] | None,
    model: Mapping[str, Any] | None,
    on_progress: Callable[[Progress[R]], None] | None,
) -> list[R]:
    """Make the records of images that are not on disk yet, a few at a time, and write each group when it is done.

    `make` is called with inputs, indices and labels; `samples` is how many noises it takes for each.
    """
    chosen = choose_images(classifier, data, indices)
    device = classifier.device_for(torch.empty(0))
    settings |= describe_job(classifier, data, chosen, model)
    ranks = current_ranks()
    ranks.require_same_on_all_ranks(settings)
    segment = {**describe_environment(device), "processes": ranks.size}
    path = Path(out) if out is not None and ranks.first else None
    writer = ResultWriter(path, kind, chosen, settings, segment) if path else None
    done = ranks.broadcast_from_rank0(writer.done if writer else 0)
    left, records = chosen[done:], list[R]()
    groups = _groups(left, inputs_at_once(samples, device), data.shape.numel(), ranks.size)

    def work(number: int) -> tuple[list[R], float]:
        group, begun = groups[number], time.perf_counter()
        images = data.floats(group, device)
        classifier.check_values(images)
        made = list(make(images, group, data.labels[group].tolist()))
        return made, time.perf_counter() - begun

    with writer or nullcontext():
        for made, seconds in ranks.map_in_order(len(groups), work):
            if writer:
                writer.append(made)
            records += made
            if on_progress:
                on_progress(Progress(done + len(records), len(chosen), made, seconds))
    ranks.wait_for_rank0()  # nobody reads the file before it is closed
    return records


def choose_images(classifier: SmoothedClassifier, data: ImageData, indices: Sequence[int] | None) -> list[int]:
    """Return the images to evaluate, all by default, after a look whether they and the classifier go together."""
    _check_classifier(classifier)
    if not isinstance(data, ImageData):
        raise UsageError(f"Expected `data` as `load_dataset` returns it, but got a {type(data).__name__}.")
    try:
        chosen = [_place(index) for index in (range(len(data)) if indices is None else indices)]
    except TypeError:
        raise UsageError(f"Expected `indices` to be whole numbers, but got {reprlib.repr(indices)}.") from None
    if not all(0 <= index < len(data) for index in chosen):
        raise UsageError(f"Expected every index to be between 0 and {len(data) - 1}.")
    if len({*chosen}) < len(chosen):
        raise UsageError("Expected `indices` to name every image once.")
    if classifier.num_classes is not None and int(data.labels.max()) >= classifier.num_classes:
        raise UsageError(
            f"{data.name} has label {int(data.labels.max())}, but the model only {classifier.num_classes} classes."
        )
    return chosen


def _place(index: Any) -> int:
    """Return a whole number; what is true or false belongs to a mask, and is none."""
    if isinstance(index, bool) or getattr(index, "dtype", None) == torch.bool:
        raise TypeError
    return operator.index(index)


def _check_classifier(classifier: Any) -> None:
    if not isinstance(classifier, SmoothedClassifier):
        raise UsageError(f"Expected `classifier` to be a SmoothedClassifier, but got a {type(classifier).__name__}.")


def describe_job(
    classifier: SmoothedClassifier, data: ImageData, chosen: list[int], model: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return what the rows depend on beside the protocol: the function that votes, and the images."""
    device = classifier.device_for(torch.empty(0))
    noise, classes = classifier.noise.settings(), classifier.num_classes
    return {
        "precision": classifier.precision,
        "form": classifier.form,
        "micro_batch": classifier.micro_batch_for(data.shape, device),
        "device": device.type,
        "images": _compact(chosen),
        "data": _describe(data),
        "model": _describe_model(classifier.model, model or {}),
        # A network may know more classes than its data set has: recertification has to share alpha among all.
        **({} if classes in (None, classes_of(data.name)) else {"classes": classes}),
        **noise,
        # A sound certificate is about one function: the same kernels, on the same device, from the first row on.
        **({"pinned": describe_function(device)} if noise.get("noise") == "grid" else {}),
    }


def _describe_model(model: Any, told: Mapping[str, Any]) -> dict[str, Any]:
    """Name the base classifier; one that is told without a hash is known by its own, so that others are refused."""
    if "sha256" in told or not isinstance(model, nn.Module):
        return dict(told)
    return {**told, "weights": fingerprint_model(model)}


def _describe(data: ImageData) -> dict[str, Any]:
    """Name the images; of a corrupted set also how its rows are to be read, and their size if the name misleads."""
    size = {} if dimensions_of(data.name) == data.shape.numel() else {"dimensions": data.shape.numel()}
    rows = {"severities": data.severities, "rows": len(data)} if "/" in data.name else {}
    return {"name": data.name, "split": data.split, "sha256": data.fingerprint, **rows, **size}


def _groups(indices: list[int], most: int, numel: int, ranks: int) -> list[list[int]]:
    """Cut the images that are left into groups that fit into memory and leave every rank some of the last ones."""
    fair = -(-len(indices) // (4 * ranks)) if ranks > 1 else most
    size = max(1, min(most, fair, _MOST_VALUES // numel))
    return [indices[first : first + size] for first in range(0, len(indices), size)]


def _compact(indices: list[int]) -> str | list[int]:
    """Write an arithmetic progression as start:stop:step, and anything else as it is."""
    if not indices:
        return []
    step = indices[1] - indices[0] if len(indices) > 1 else 1
    stop = indices[-1] + 1
    return f"{indices[0]}:{stop}:{step}" if step > 0 and indices == list(range(indices[0], stop, step)) else indices
