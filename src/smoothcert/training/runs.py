"""Runs from nothing: their data, for CAT-RS a teacher and its soft labels, the training, the certification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smoothcert.data import ImageData
from smoothcert.distributed.ranks import as_single_process, current_ranks
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.runtime.deadline import Deadline
from smoothcert.runtime.failures import collected, raise_together
from smoothcert.training.config import TrainConfig
from smoothcert.training.fit import fit, fit_together
from smoothcert.training.loop import Training
from smoothcert.training.packed_labels import PackedLabels
from smoothcert.training.run_data import RunImages
from smoothcert.training.run_folder import RunFolder
from smoothcert.training.soft_labels import make_soft_labels
from smoothcert.training.teachers import teacher_config, uses_soft_labels

OnStage = Callable[[str, str], Callable[[Any], None]]
"""Called with what begins (train, label, certify or compile) and its name; returns what is called with progress."""


def silent(kind: str, name: str) -> Callable[[Any], None]:
    """Ignore all progress."""
    return lambda progress: None


def train_run(config: TrainConfig, runs: str | Path, **options: Any) -> Path:
    """Make everything a configuration needs, each part kept in its folder below `runs`; return the network's file.

    `load_checkpoint` reads it. Options are those of `train_runs`.
    """
    return train_runs([config], runs, **options)[0]


def train_runs(
    configs: Sequence[TrainConfig],
    runs: str | Path,
    *,
    data_dir: str | Path | None = None,
    device: torch.device | str = "cpu",
    compile: bool | None = None,
    workers: int | None = None,
    on_stage: OnStage = silent,
    time_limit: float | None = None,
) -> list[Path]:
    """Make several runs: first what each needs, then their training, a step of each in turn.

    One that cannot begin does not stop the others; what went wrong is raised at the end.
    """
    if isinstance(configs, TrainConfig):
        raise UsageError("Expected a list of configurations, but got a single one, which `train_run` takes.")
    for config in configs:
        if not isinstance(config, TrainConfig):
            raise UsageError(f"Expected a `TrainConfig`, as `load_recipe` returns it, but got {config!r}.")
    deadline, runs = Deadline(time_limit), Path(runs)
    options: dict[str, Any] = {"device": device, "compile": compile, "workers": workers}
    sets = RunImages(data_dir)
    trainings, errors = list[Training](), list[SmoothcertError]()
    for config in configs:
        folder = runs / config.name
        with collected(errors):
            if current_ranks().broadcast_from_rank0(RunFolder(folder).finished):
                RunFolder(folder).open(config)
                continue
            train, test = sets.of(config)
            soft = None
            if uses_soft_labels(config):
                teacher = Path(config.teacher)
                if not config.teacher:
                    teacher = _train_teacher(teacher_config(config), runs, sets, on_stage, deadline, options)
                soft = _soft_labels(config, teacher, train, device, on_stage, deadline)
            trainings.append(Training(config, folder, train, test, soft=soft, **options))
    names = [training.config.name for training in trainings]
    if any(training.compiled for training in trainings):
        on_stage("compile", "the training step")
    if names:
        progress = on_stage("train", names[0] if len(names) == 1 else f"{len(names)} runs")
        for training in trainings:
            training.on_progress = progress
        try:
            fit_together(trainings, deadline.left)
        except SmoothcertError as error:
            errors.append(error)
    raise_together(errors)
    return [RunFolder(runs / config.name).model for config in configs]


def prepare_runs(
    configs: Sequence[TrainConfig],
    runs: Path,
    *,
    data_dir: str | Path | None = None,
    device: torch.device | str = "cpu",
    on_stage: OnStage = silent,
    time_limit: float | None = None,
) -> None:
    """Make what several runs need, shared out over the ranks: teachers, one on each, then the images of soft labels."""
    deadline, sets = Deadline(time_limit), RunImages(data_dir)
    needing = [config for config in configs if uses_soft_labels(config)]
    wanted = {before.name: before for before in map(teacher_config, (c for c in needing if not c.teacher))}
    teachers = list(wanted.values())
    for before in teachers:
        sets.of(before)  # all ranks compare what they have of it

    def train(number: int) -> None:
        with as_single_process():
            _train_teacher(teachers[number], runs, sets, on_stage, deadline, {"device": device})

    for _ in current_ranks().map_in_order(len(teachers), train):
        pass
    for config in needing:
        teacher = Path(config.teacher or runs / teacher_config(config).name)
        _soft_labels(config, teacher, sets.of(config)[0], device, on_stage, deadline)


def _train_teacher(
    config: TrainConfig, runs: Path, sets: RunImages, on_stage: OnStage, deadline: Deadline, options: dict[str, Any]
) -> Path:
    """Train the network that votes on soft labels, if it is not there, and return its folder."""
    folder = runs / config.name
    progress = None if RunFolder(folder).finished else on_stage("train", config.name)
    fit(config, folder, *sets.of(config), on_progress=progress, time_limit=deadline.left, **options)
    return folder


def _soft_labels(
    config: TrainConfig,
    teacher: Path,
    train: ImageData,
    device: torch.device | str,
    on_stage: OnStage,
    deadline: Deadline,
) -> Tensor | PackedLabels:
    return make_soft_labels(
        teacher,
        train,
        sigma=config.label_sigma,
        samples=config.label_samples,
        augmentation=config.augmentation if config.label_view == "augmented" else "none",
        device=device,
        on_progress=deadline.watching(on_stage("label", f"soft labels of {train.name}")),
    )
