"""Estimate the time to train and certify a run, from short trials."""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from smoothcert.data import ImageData
from smoothcert.models import build_model
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.deploy import choose_deployment
from smoothcert.training.compute import pays_to_compile, plan_epoch, split_of, with_defaults
from smoothcert.training.config import TrainConfig, without_sampling
from smoothcert.training.fit import fit
from smoothcert.training.loop import TrainProgress
from smoothcert.training.passes import relative_cost
from smoothcert.training.run_data import load_images
from smoothcert.training.run_folder import RunFolder
from smoothcert.training.sampling import split_validation
from smoothcert.training.setup import new_model
from smoothcert.training.teachers import teacher_config, uses_soft_labels

_SECONDS = 4.0


def estimate_labels(
    config: TrainConfig,
    data_dir: str | Path | None,
    device: torch.device,
    runs: Path | None = None,
    compile: bool | None = None,
) -> tuple[float, float]:
    """Return the seconds for a run's teacher and for its soft labels: 0 if they exist or are not needed."""
    if not uses_soft_labels(config):
        return 0.0, 0.0
    folder = Path(config.teacher) if config.teacher else runs and runs / teacher_config(config).name
    if folder and any(folder.glob("soft-labels-*.safetensors")):  # the runs of a table share them
        return 0.0, 0.0
    data, teacher = load_images(config, "train", data_dir), 0.0
    if not config.teacher and not (folder and RunFolder(folder).finished):
        steps, seconds = estimate_steps(teacher_config(config), data_dir, device, compile)
        teacher = steps * seconds
    return teacher, len(data) * estimate_certification(config, data, device, config.label_samples)


def estimate_certification(config: TrainConfig, data: ImageData, device: torch.device, n: int) -> float:
    """Return the seconds per image for n votes, from a short trial with an untrained network."""
    model = build_model(config.architecture, data.shape, len(data.classes)).to(device).eval()
    form, precision = choose_deployment(model, data.shape, n * len(data))
    return n * seconds_per_vote(SmoothedClassifier(model, config.sigma, form=form, precision=precision), data, device)


def seconds_per_vote(classifier: SmoothedClassifier, data: ImageData, device: torch.device) -> float:
    """Return the mean time of a vote on the first image, from a short trial."""
    image, votes = data.floats([0], device)[0], 4 * classifier.micro_batch_for(data.shape, device)
    classifier.counts(image, votes)  # not timed: it may include compilation
    started = time.perf_counter()
    classifier.counts(image, votes)
    return (time.perf_counter() - started) / votes


class _EnoughError(Exception):
    """Raised to stop a trial."""


def estimate_steps(
    config: TrainConfig, data_dir: str | Path | None, device: torch.device, compile: bool | None = None
) -> tuple[int, float]:
    """Return the number of steps of a run and the mean seconds per step, without teacher and soft labels.

    Only the first steps are timed. Their mean time is scaled to the run's mean number of forward passes per step,
    because steps of later epochs may cost more, and because some runs also count votes on training images.
    """
    data = load_images(config, "train", data_dir)
    images = len(split_validation(len(data), config.validation)[0])
    steps = config.epochs * len(plan_epoch(images, config.batch, split_of(config)))
    compiled = pays_to_compile(config, steps, device) if compile is None else compile
    scores = new_model(config, data).num_classes  # a user's network may have more outputs than the data has classes
    soft = torch.full((len(data), scores), 1 / scores)
    times: list[tuple[int, float]] = []

    def watch(progress: TrainProgress) -> None:
        times.append((progress.step, time.perf_counter()))
        if len(times) > 1 and times[-1][1] - times[0][1] > _SECONDS:
            raise _EnoughError

    with tempfile.TemporaryDirectory() as folder:
        trial = without_sampling(config, epochs=1000)
        options: dict[str, Any] = {"device": device, "compile": compiled, "on_progress": watch}
        try:
            with suppress(_EnoughError):
                fit(trial, Path(folder), data, data.subset([0]), soft=soft, **options)
        except KeyboardInterrupt:  # drop its message that the state is saved: the trial's folder is deleted
            raise KeyboardInterrupt from None
    (first, began), (last, ended) = times[0], times[-1]
    config = with_defaults(config)
    whole_run = relative_cost(config) / relative_cost(without_sampling(config, epochs=1, warmup_epochs=0.0))
    return steps, whole_run * (ended - began) / max(1, last - first)
