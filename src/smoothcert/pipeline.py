"""Runs from nothing: their data, for CAT-RS a teacher and its soft labels, the training, the certification."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smoothcert.certification import certify_dataset
from smoothcert.checkpoint import load_checkpoint
from smoothcert.config import TrainConfig, to_toml
from smoothcert.data import ImageData, load_dataset, select
from smoothcert.deadline import Deadline
from smoothcert.engine.agreement import decide, settle
from smoothcert.engine.deploy import choose_deployment
from smoothcert.engine.ranks import joined
from smoothcert.methods import create_method
from smoothcert.runs import RunFolder
from smoothcert.smoothing import SmoothedClassifier
from smoothcert.soft_labels import make_soft_labels
from smoothcert.trainer import Training, fit, fit_together

OnStage = Callable[[str, str], Callable[[Any], None]]
"""Called with what begins (train, label, certify or compile) and its name; returns what is called with progress."""


def _silent(kind: str, name: str) -> Callable[[Any], None]:
    return lambda progress: None


def train_run(config: TrainConfig, runs: Path, **options: Any) -> Path:
    """Make everything a configuration needs, each part kept in its folder below `runs`; return the network's file."""
    return train_runs([config], runs, **options)[0]


def train_runs(
    configs: Sequence[TrainConfig],
    runs: Path,
    *,
    data_dir: str | Path | None = None,
    device: torch.device | str = "cpu",
    compile: bool | None = None,
    on_stage: OnStage = _silent,
    time_limit: float | None = None,
) -> list[Path]:
    """Make several runs: first what each needs, then their training, a step of each in turn."""
    deadline = Deadline(time_limit)
    options: dict[str, Any] = {"device": device, "compile": compile}
    sets = _Sets(data_dir)
    trainings = []
    for config in configs:
        folder = runs / config.name
        if decide(joined(), RunFolder(folder).finished):
            RunFolder(folder).open(config)
            continue
        train, test = sets[config.dataset]
        soft = None
        if create_method(config.method, config.sigma, config.options).uses_soft_labels:
            teacher = Path(config.teacher)
            if not config.teacher:
                before = teacher_config(config)
                teacher = runs / before.name
                progress = None if RunFolder(teacher).finished else on_stage("train", before.name)
                fit(before, teacher, train, test, on_progress=progress, time_limit=deadline.left, **options)
            progress = deadline.watching(on_stage("label", f"soft labels of {train.name}"))
            soft = _soft_labels(config, teacher, train, device, progress)
        trainings.append(Training(config, folder, train, test, soft=soft, **options))
    names = [training.config.name for training in trainings]
    if any(training.compiled for training in trainings):
        on_stage("compile", "the training step")
    if names:
        progress = on_stage("train", names[0] if len(names) == 1 else f"{len(names)} runs")
        for training in trainings:
            training.on_progress = progress
        fit_together(trainings, deadline.left)
    return [RunFolder(runs / config.name).model for config in configs]


class _Sets(dict[str, tuple[ImageData, ImageData]]):
    """Training and test images by the data set's name, read once, and the same on every rank."""

    def __init__(self, data_dir: str | Path | None) -> None:
        super().__init__()
        self.data_dir = data_dir

    def __missing__(self, name: str) -> tuple[ImageData, ImageData]:
        train, test = (load_dataset(name, split, self.data_dir) for split in ("train", "test"))
        settle(joined(), {"class folders": " ".join(train.classes), "images": f"{len(train)} + {len(test)}"})
        self[name] = train, test
        return train, test


def certify_run(
    run: Path,
    *,
    skip: int = 1,
    n0: int = 100,
    n: int = 100_000,
    alpha: float = 0.001,
    data_dir: str | Path | None = None,
    device: torch.device | str = "cpu",
    on_stage: OnStage = _silent,
    time_limit: float | None = None,
) -> Path:
    """Certify a trained run on every `skip`-th test image of its data set, in the form that suits the device.

    Returns the results file, which lies in the run's folder and is gone on with where it is unfinished. After
    `time_limit` seconds OutOfTimeError is raised.
    """
    checkpoint = load_checkpoint(run)
    data = load_dataset(RunFolder(run).dataset or checkpoint.about["dataset"], "test", data_dir)
    model, indices = checkpoint.model.to(device), select(len(data), skip)
    form, precision = choose_deployment(model, data.shape, n * len(indices))
    sigma = checkpoint.about["sigma"]
    classifier = SmoothedClassifier(model, sigma, model.num_classes, form=form, precision=precision)
    out = run / results_name("certify", data, sigma, n, skip)
    if form == "compiled":
        on_stage("compile", "the network")
    certify_dataset(
        classifier,
        data,
        out,
        n0=n0,
        n=n,
        alpha=alpha,
        indices=indices,
        model=checkpoint.describe(),
        on_progress=Deadline(time_limit).watching(on_stage("certify", run.name)),
    )
    return out


def results_name(
    task: str,
    data: ImageData,
    sigma: float,
    n: int,
    skip: int = 1,
    most: int | None = None,
    shard: tuple[int, int] = (1, 1),
) -> str:
    """Return the name of a results file that says how it was made."""
    parts = [task, data.name, data.split, f"sigma{sigma:g}", f"n{n}"]
    parts += [f"skip{skip}"] if skip > 1 else []
    parts += [f"max{most}"] if most else []
    parts += ["shard{}of{}".format(*shard)] if shard[1] > 1 else []
    return "-".join(parts) + ".tsv"


def teacher_config(config: TrainConfig) -> TrainConfig:
    """Return the Gaussian training whose network votes on soft labels: the run's own settings at sigma_0."""
    changes: dict[str, Any] = {"method": "gaussian", "options": {}, "sigma": config.label_sigma, "seed": 0}
    unused: dict[str, Any] = {"label_samples": 1, "label_view": "clean"}
    teacher = dataclasses.replace(config, name="teacher", **changes, **unused)
    # Runs share a teacher when all its settings are the same: its name ends in a hash of them.
    digest = hashlib.sha256(to_toml(teacher).encode()).hexdigest()[:6]
    stem = re.sub(r"[^\w.-]", "-", Path(config.dataset).stem, flags=re.ASCII)
    return dataclasses.replace(teacher, name=f"{stem}-{config.architecture}-teacher-{digest}")


def _soft_labels(
    config: TrainConfig, teacher: Path, train: ImageData, device: torch.device | str, progress: Callable[[Any], None]
) -> Tensor:
    return make_soft_labels(
        teacher,
        train,
        sigma=config.label_sigma,
        samples=config.label_samples,
        augmentation=config.augmentation if config.label_view == "augmented" else "none",
        device=device,
        on_progress=progress,
    )
