"""One job on a dataset: the classifier, the chosen images, and the settings that its results depend on.

Certification (with or without a stopping rule), prediction and the comparison of precisions begin with `prepare_job`.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Generic

import torch
from torch import Tensor, nn

from smoothcert.certification.model_hash import fingerprint_model
from smoothcert.data.image_data import ImageData
from smoothcert.data.user_data import as_image_data
from smoothcert.dataset_names import classes_of, dimensions_of
from smoothcert.distributed.ranks import Ranks, current_ranks
from smoothcert.errors import UsageError, kind_of, quote
from smoothcert.models import Ensemble, UserModel
from smoothcert.results.records import R
from smoothcert.results.writer import ResultWriter
from smoothcert.runtime.environment import describe_environment, describe_function
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.counting import samples_at_once
from smoothcert.smoothing.deploy import voting_kernel

_MOST_VALUES = 1 << 28  # maximum number of input values in memory at once


@dataclass(frozen=True)
class Progress(Generic[R]):
    """Progress of a job: images done, images in total, the records just computed, and the seconds these took."""

    done: int
    total: int
    records: Sequence[R]
    seconds: float


@dataclass(frozen=True)
class DatasetJob:
    """The classifier, the chosen images, and everything that the results depend on.

    `out` is None on ranks that do not write, and if no file is wanted.
    """

    classifier: SmoothedClassifier
    data: ImageData
    indices: list[int]
    settings: dict[str, Any]
    out: Path | None
    device: torch.device
    ranks: Ranks
    function: Mapping[str, str] | None = None  # identifies a base classifier that `model` does not describe

    @property
    def segment(self) -> dict[str, Any]:
        """Sidecar entry for this process: device, versions and number of ranks."""
        kind = "module" if isinstance(self.classifier.model, nn.Module) else "function"
        named: dict[str, Any] = {kind: self.function} if self.function else {}
        form, precision = self.classifier.form, self.classifier.precision
        if kernel := voting_kernel(self.classifier.model, form, precision, self.device, self.data.shape):
            named["kernel"] = kernel
        return {**describe_environment(self.device), "processes": self.ranks.size, **named}

    def evaluate(
        self,
        kind: type[R],
        samples: int,
        make: Callable[[Tensor, list[int], list[int]], Iterable[R]],
        on_progress: Callable[[Progress[R]], None] | None,
    ) -> list[R]:
        """Compute and write the missing records, one group of images at a time; return all records on rank 0.

        `make` maps inputs, indices and labels to records, taking `samples` noise samples per image.
        """
        ranks, total = self.ranks, len(self.indices)
        writer = ResultWriter(self.out, kind, self.indices, self.settings, self.segment) if self.out else None
        done = ranks.broadcast_from_rank0(writer.done if writer else 0)
        groups = self._groups(self.indices[done:], max(1, samples_at_once(self.device) // samples))

        def work(number: int) -> tuple[list[R], float]:
            group, started = groups[number], perf_counter()
            images = self.data.floats(group, self.device)
            self.classifier.check_values(images)
            records = list(make(images, group, self.data.labels[group].tolist()))
            return records, perf_counter() - started

        def restore(value: Any) -> tuple[list[R], float]:
            records, seconds = value
            return [kind(*fields) for fields in records], seconds

        records_so_far = list[R]()
        with writer or nullcontext():
            if writer:
                records_so_far += writer.stored_records(self.classifier.num_classes)
            for records, seconds in ranks.map_in_order(len(groups), work, restore):
                if writer:
                    writer.append(records)
                records_so_far += records
                if on_progress:
                    on_progress(Progress(len(records_so_far), total, records, seconds))
        ranks.wait_for_rank0()  # until the file is closed
        return records_so_far

    def _groups(self, indices: list[int], most: int) -> list[list[int]]:
        """Divide images into groups of at most `most` that fit into memory and keep all ranks busy to the end."""
        fair = -(-len(indices) // (4 * self.ranks.size)) if self.ranks.size > 1 else most
        size = max(1, min(most, fair, _MOST_VALUES // self.data.shape.numel()))
        return [indices[first : first + size] for first in range(0, len(indices), size)]


def prepare_job(
    classifier: SmoothedClassifier,
    data: Any,
    out: str | Path | None,
    indices: Sequence[int] | None,
    model: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
) -> DatasetJob:
    """Return the job, after checking that classifier and images fit together and that all ranks have the same job."""
    if not isinstance(classifier, SmoothedClassifier):
        raise UsageError(f"Expected `classifier` to be a SmoothedClassifier, but got {kind_of(classifier)}.")
    data = as_image_data(data)
    if "stop" in settings and classifier.num_classes is None:
        raise UsageError("A stopping rule needs `num_classes`; pass it to `SmoothedClassifier`.")
    chosen = _select_images(data, indices)
    if classifier.num_classes is not None and int(data.labels.max()) >= classifier.num_classes:
        raise UsageError(
            f"{data.name} has label {int(data.labels.max())}, but the model has only {classifier.num_classes} classes."
        )
    ranks, device = current_ranks(), classifier.device_for(torch.empty(0))
    everything = {**settings, **_describe(classifier, data, chosen, model, device)}
    if "stop" in settings:
        everything["classes"] = classifier.num_classes
    ranks.require_same_on_all_ranks(everything)
    path = Path(out) if out is not None and ranks.first else None
    function = None if model else _identify_function(classifier.model)
    return DatasetJob(classifier, data, chosen, everything, path, device, ranks, function)


def _select_images(data: ImageData, indices: Sequence[int] | None) -> list[int]:
    """Return the indices of the images to evaluate, by default all. Raise if an index is repeated or out of range."""
    try:
        chosen = [_whole_number(index) for index in (range(len(data)) if indices is None else indices)]
    except TypeError:
        raise UsageError(f"Expected `indices` to be whole numbers, but got {quote(indices)}.") from None
    if outside := [index for index in chosen if not 0 <= index < len(data)]:
        raise UsageError(f"Expected `indices` to be between 0 and {len(data) - 1}, but got {outside[0]}.")
    if len({*chosen}) < len(chosen):
        raise UsageError("Expected `indices` to be unique.")
    return chosen


def _whole_number(index: Any) -> int:
    if isinstance(index, bool) or getattr(index, "dtype", None) == torch.bool:  # a mask is not a list of indices
        raise TypeError
    return operator.index(index)


def _describe(
    classifier: SmoothedClassifier,
    data: ImageData,
    chosen: list[int],
    model: Mapping[str, Any] | None,
    device: torch.device,
) -> dict[str, Any]:
    """Return the sidecar settings that describe the classifier and the images."""
    noise, classes = classifier.noise.settings(), classifier.num_classes
    return {
        "sigma": classifier.sigma,
        "precision": classifier.precision,
        "form": classifier.form,
        "micro_batch": classifier.micro_batch_for(data.shape, device),
        "device": device.type,
        "images": _compact(chosen),
        "data": _describe_data(data),
        "model": _describe_model(classifier.model, model or {}),
        # A model may have more classes than its dataset; recertification must share alpha among the model's classes.
        **({} if classes in (None, classes_of(data.name)) else {"classes": classes}),
        **noise,
        # A sound certificate holds for one exact function, so all rows need the same kernels on the same device.
        **({"pinned": describe_function(device)} if noise.get("noise") == "grid" else {}),
    }


def _describe_model(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the base classifier in the sidecar: `given`, with a fingerprint if it has no `sha256`."""
    if "sha256" in given or not isinstance(model, nn.Module):
        return dict(given)
    if isinstance(model, Ensemble):
        modules = [member for member in model.members if isinstance(member, nn.Module)]
        members = [fingerprint_model(member) for member in modules] if len(modules) == len(model.members) else []
        given = {"ensemble": {"members": members or len(model.members), "consensus": model.consensus}, **given}
    return {**given, "weights": fingerprint_model(model)}


def _identify_function(function: Any) -> dict[str, str]:
    """Return module and qualified name of a callable, and a hash of its source if that is available."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, UserModel):
        function = function.network
    named = function if hasattr(function, "__qualname__") else type(function)
    identity = {"module": str(named.__module__), "name": str(named.__qualname__)}
    with suppress(OSError, TypeError):
        identity["source_sha256"] = hashlib.sha256(inspect.getsource(named).encode()).hexdigest()
    return identity


def _describe_data(data: ImageData) -> dict[str, Any]:
    """Describe the images for the sidecar; the input size is omitted if the dataset's name implies it."""
    size = {} if dimensions_of(data.name) == data.shape.numel() else {"dimensions": data.shape.numel()}
    rows = {"severities": data.severities, "rows": len(data)} if "/" in data.name else {}
    return {"name": data.name, "split": data.split, "sha256": data.fingerprint, **rows, **size}


def _compact(indices: list[int]) -> str | list[int]:
    """Return indices with a constant positive step as the text "start:stop:step", and any other list unchanged."""
    if not indices:
        return []
    step = indices[1] - indices[0] if len(indices) > 1 else 1
    stop = indices[-1] + 1
    return f"{indices[0]}:{stop}:{step}" if step > 0 and indices == list(range(indices[0], stop, step)) else indices
