"""Runs from nothing: their data, for CAT-RS a teacher and its soft labels, the training, the certification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smoothcert.certification.dataset import certify_dataset
from smoothcert.checkpoints.checkpoint import load_checkpoint
from smoothcert.data import ImageData, select_rows
from smoothcert.distributed.consensus import decide
from smoothcert.distributed.ranks import alone, joined
from smoothcert.distributed.work_queue import share_out
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.runtime.deadline import Deadline
from smoothcert.runtime.failures import collected, raise_together
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.deploy import choose_deployment
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


def _silent(kind: str, name: str) -> Callable[[Any], None]:
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
    on_stage: OnStage = _silent,
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
            if decide(joined(), RunFolder(folder).finished):
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
    on_stage: OnStage = _silent,
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
        with alone():
            _train_teacher(teachers[number], runs, sets, on_stage, deadline, {"device": device})

    for _ in share_out(joined(), len(teachers), train):
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


def certify_run(
    run: Path,
    sets: Sequence[ImageData],
    *,
    skip: int = 1,
    n0: int = 100,
    n: int = 100_000,
    alpha: float = 0.001,
    device: torch.device | str = "cpu",
    on_stage: OnStage = _silent,
    time_limit: float | None = None,
) -> None:
    """Certify a trained run on every `skip`-th image of some data sets, in the form that suits the device.

    The results files lie in the run's folder and are gone on with where they are unfinished. After `time_limit`
    seconds OutOfTimeError is raised.
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
            run / results_name("certify", data, sigma, n, skip),
            n0=n0,
            n=n,
            alpha=alpha,
            indices=select_rows(data, skip),
            model=checkpoint.describe(),
            on_progress=deadline.watching(on_stage("certify", title)),
        )


def results_name(
    task: str,
    data: ImageData,
    sigma: float,
    n: int,
    skip: int = 1,
    most: int | None = None,
    shard: tuple[int, int] = (1, 1),
    severities: str = "",
) -> str:
    """Return the name of a results file that says how it was made."""
    parts = [task, data.name.replace("/", "-") + severities, data.split, f"sigma{sigma:g}", f"n{n}"]
    parts += [f"skip{skip}"] if skip > 1 else []
    parts += [f"max{most}"] if most else []
    parts += ["shard{}of{}".format(*shard)] if shard[1] > 1 else []
    return "-".join(parts) + ".tsv"


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
