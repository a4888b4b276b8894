"""A run from nothing: its data, for CAT-RS a teacher and its soft labels, then the training itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smoothcert.config import TrainConfig
from smoothcert.data import ImageData, load_dataset
from smoothcert.methods import create_method
from smoothcert.runs import RunFolder
from smoothcert.soft_labels import make_soft_labels
from smoothcert.trainer import fit

OnStage = Callable[[str, str], Callable[[Any], None]]
"""Called with what begins (train or label) and its name; returns what is called with its progress."""


def _silent(kind: str, name: str) -> Callable[[Any], None]:
    return lambda progress: None


def train_run(
    config: TrainConfig,
    runs: Path,
    *,
    data_dir: str | Path | None = None,
    device: torch.device | str = "cpu",
    on_stage: OnStage = _silent,
    time_limit: float | None = None,
) -> Path:
    """Make everything a configuration needs, each part kept in its folder below `runs`; return the network's file."""
    run = RunFolder(runs / config.name)
    if run.finished:
        run.open(config)
        return run.model
    train, test = (load_dataset(config.dataset, split, data_dir) for split in ("train", "test"))
    soft = None
    if create_method(config.method, config.sigma, config.options).uses_soft_labels:
        soft = _soft_labels(config, runs, train, test, device, on_stage, time_limit)
    progress = on_stage("train", config.name)
    options: dict[str, Any] = {"device": device, "on_progress": progress, "time_limit": time_limit}
    return fit(config, run.path, train, test, soft=soft, **options)


def teacher_config(config: TrainConfig) -> TrainConfig:
    """Return the Gaussian training whose network votes on soft labels: the run's own settings at sigma_0."""
    name = f"{Path(config.dataset).stem}-{config.architecture}-teacher-{config.label_sigma:g}-{config.epochs}ep"
    changes: dict[str, Any] = {"method": "gaussian", "options": {}, "sigma": config.label_sigma, "seed": 0}
    unused: dict[str, Any] = {"label_samples": 1, "label_view": "clean"}
    return dataclasses.replace(config, name=name, **changes, **unused)


def _soft_labels(
    config: TrainConfig,
    runs: Path,
    train: ImageData,
    test: ImageData,
    device: torch.device | str,
    on_stage: OnStage,
    time_limit: float | None,
) -> Tensor:
    teacher = Path(config.teacher)
    if not config.teacher:
        before = teacher_config(config)
        teacher = runs / before.name
        if not RunFolder(teacher).finished:
            progress = on_stage("train", before.name)
            fit(before, teacher, train, test, device=device, on_progress=progress, time_limit=time_limit)
    return make_soft_labels(
        teacher,
        train,
        sigma=config.label_sigma,
        samples=config.label_samples,
        augmentation=config.augmentation if config.label_view == "augmented" else "none",
        device=device,
        precision=config.precision,
        on_progress=on_stage("label", f"soft labels of {train.name}"),
    )
