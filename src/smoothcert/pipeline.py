"""Runs from nothing: their data, for CAT-RS a teacher and its soft labels, then the training itself."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smoothcert.config import TrainConfig
from smoothcert.data import ImageData, load_dataset
from smoothcert.methods import create_method
from smoothcert.runs import RunFolder
from smoothcert.soft_labels import make_soft_labels
from smoothcert.trainer import Training, fit, fit_together

OnStage = Callable[[str, str], Callable[[Any], None]]
"""Called with what begins (train or label) and its name; returns what is called with its progress."""


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
    began = time.monotonic()

    def left() -> float | None:
        return None if time_limit is None else max(0.0, time_limit - (time.monotonic() - began))

    options: dict[str, Any] = {"device": device, "compile": compile}
    sets = _Sets(data_dir)
    trainings = []
    for config in configs:
        folder = runs / config.name
        if RunFolder(folder).finished:
            RunFolder(folder).open(config)
            continue
        train, test = sets[config.dataset]
        soft = None
        if create_method(config.method, config.sigma, config.options).uses_soft_labels:
            teacher = Path(config.teacher) if config.teacher else runs / teacher_config(config).name
            if not config.teacher and not RunFolder(teacher).finished:
                progress = on_stage("train", teacher.name)
                fit(teacher_config(config), teacher, train, test, on_progress=progress, time_limit=left(), **options)
            soft = _soft_labels(config, teacher, train, device, on_stage("label", f"soft labels of {train.name}"))
        trainings.append(Training(config, folder, train, test, soft=soft, **options))
    names = [training.config.name for training in trainings]
    if names:
        progress = on_stage("train", names[0] if len(names) == 1 else f"{len(names)} runs")
        for training in trainings:
            training.on_progress = progress
        fit_together(trainings, left())
    return [RunFolder(runs / config.name).model for config in configs]


class _Sets(dict[str, tuple[ImageData, ImageData]]):
    """Training and test images by the data set's name, read once."""

    def __init__(self, data_dir: str | Path | None) -> None:
        super().__init__()
        self.data_dir = data_dir

    def __missing__(self, name: str) -> tuple[ImageData, ImageData]:
        self[name] = load_dataset(name, "train", self.data_dir), load_dataset(name, "test", self.data_dir)
        return self[name]


def teacher_config(config: TrainConfig) -> TrainConfig:
    """Return the Gaussian training whose network votes on soft labels: the run's own settings at sigma_0."""
    name = f"{Path(config.dataset).stem}-{config.architecture}-teacher-{config.label_sigma:g}-{config.epochs}ep"
    changes: dict[str, Any] = {"method": "gaussian", "options": {}, "sigma": config.label_sigma, "seed": 0}
    unused: dict[str, Any] = {"label_samples": 1, "label_view": "clean"}
    return dataclasses.replace(config, name=name, **changes, **unused)


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
