"""Certification of a trained run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from smoothcert.certification.dataset import certify_dataset
from smoothcert.checkpoints.checkpoint import load_checkpoint
from smoothcert.data import ImageData, select_rows
from smoothcert.results.naming import results_name
from smoothcert.runtime.deadline import Deadline
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.deploy import choose_deployment
from smoothcert.training.prepare import OnStage, silent


def certify_run(
    run: Path,
    sets: Sequence[ImageData],
    *,
    skip: int = 1,
    n: int = 100_000,
    device: torch.device | str = "cpu",
    on_stage: OnStage = silent,
    time_limit: float | None = None,
    **protocol: Any,
) -> None:
    """Certify a trained run on every `skip`-th image of the datasets, in the network's fastest form and precision.

    Results are written to the run folder; unfinished results are resumed. After `time_limit` seconds, OutOfTimeError is
    raised. `protocol` contains further arguments of `certify_dataset`, such as `n0` and `alpha`.
    """
    checkpoint, deadline = load_checkpoint(run), Deadline(time_limit)
    model, sigma = checkpoint.model.to(device), checkpoint.about["sigma"]
    images = sum(len(select_rows(data, skip)) for data in sets)
    form, precision = choose_deployment(model, sets[0].shape, n * images)
    classifier = SmoothedClassifier(model, sigma, model.num_classes, form=form, precision=precision)
    if form == "compiled":
        on_stage("compile", "the network")
    for data in sets:
        title = f"{run.name} on {data.name}" if "/" in data.name else run.name
        certify_dataset(
            classifier,
            data,
            run / results_name("certify", data.name, data.split, sigma, n, skip=skip),
            n=n,
            indices=select_rows(data, skip),
            model=checkpoint.describe(),
            on_progress=deadline.watching(on_stage("certify", title)),
            **protocol,
        )
