"""Prepare runs for training: identify networks, load images, train teachers and make soft labels if needed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from smoothcert.certification.model_hash import fingerprint_model
from smoothcert.checkpoints.checkpoint import find_own_factory
from smoothcert.data import ImageData
from smoothcert.distributed.ranks import as_single_process, current_ranks
from smoothcert.models import Factory, ModuleCopies, find_factory
from smoothcert.runtime.deadline import Deadline
from smoothcert.training.config import TrainConfig
from smoothcert.training.fit import fit
from smoothcert.training.initial_weights import hash_initial_weights
from smoothcert.training.run_data import RunData, RunImages
from smoothcert.training.run_folder import RunFolder
from smoothcert.training.setup import SoftLabels, TrainingRun, new_model, setup_run
from smoothcert.training.soft_labels import make_soft_labels
from smoothcert.training.teachers import teacher_config, uses_soft_labels

_DIGITS = 16  # of a fingerprint

OnStage = Callable[[str, str], Callable[[Any], None]]
"""Called with the kind (train, label, certify or compile) and name of a stage; returns its progress callback."""


def silent(kind: str, name: str) -> Callable[[Any], None]:
    """Return a progress callback that does nothing, for any stage."""
    return lambda progress: None


def identify(config: TrainConfig, images: RunData, factory: Factory | None = None) -> TrainConfig:
    """Return the configuration with fingerprints of a user's network and of given initial weights.

    A run is resumed, and a teacher shared, only if the fingerprints match. A user's modules may differ between ranks;
    rank 0's fingerprints are used, because training starts from rank 0's weights.
    """
    network, weights = "", ""
    own = factory or find_factory(config.architecture)
    if own is not None:
        model = new_model(config, images.of(config)[0], own).network
        network = fingerprint_model(model, values=False)
        weights = fingerprint_model(model) if isinstance(own, ModuleCopies) else "random"
    if config.init:
        weights = hash_initial_weights(config.init)
    network, weights = current_ranks().broadcast_from_rank0([network[:_DIGITS], weights[:_DIGITS]])
    return dataclasses.replace(config, network=network, initial_weights=weights)


@dataclass(frozen=True)
class Preparation:
    """Prepares training runs: trains teachers that do not exist yet, computes soft labels, and sets the runs up.

    `options` are keyword arguments of `setup_run`.
    """

    runs: Path
    images: RunData
    on_stage: OnStage
    deadline: Deadline
    options: dict[str, Any]

    def setup(self, config: TrainConfig) -> TrainingRun | None:
        """Set a run up, with its teacher and soft labels if it needs them. Return None if the run is finished."""
        config = identify(config, self.images, self.options.get("factory"))
        folder = self.runs / config.name
        if current_ranks().broadcast_from_rank0(RunFolder(folder).finished):
            RunFolder(folder).check(config)
            return None
        train, test = self.images.of(config)
        soft = None
        if uses_soft_labels(config):
            teacher = Path(config.teacher) if config.teacher else self.train_teacher(teacher_config(config))
            soft = self.soft_labels(config, teacher, train)
        return setup_run(config, folder, train, test, soft=soft, **self.options)

    def train_teacher(self, config: TrainConfig) -> Path:
        """Train a teacher, unless it is finished, and return its folder."""
        folder = self.runs / config.name
        progress = None if RunFolder(folder).finished else self.on_stage("train", config.name)
        train, test = self.images.of(config)
        fit(config, folder, train, test, on_progress=progress, time_limit=self.deadline.left, **self.options)
        return folder

    def soft_labels(self, config: TrainConfig, teacher: Path, train: ImageData) -> SoftLabels:
        """Return the teacher's soft labels for the training images."""
        own = self.options.get("factory")
        return make_soft_labels(
            teacher,
            train,
            factory=find_own_factory(teacher, default=own) if config.teacher else own,
            sigma=config.label_sigma,
            samples=config.label_samples,
            augmentation=config.augmentation if config.label_view == "augmented" else "none",
            device=self.options["device"],
            on_progress=self.deadline.watching(self.on_stage("label", f"soft labels of {train.name}")),
        )


def prepare_runs(
    configs: Sequence[TrainConfig],
    runs: Path,
    *,
    data_dir: str | Path | None = None,
    device: torch.device | str = "cpu",
    on_stage: OnStage = silent,
    time_limit: float | None = None,
) -> None:
    """Train the teachers of several runs and compute their soft labels, dividing the work among the ranks.

    Each teacher is trained by one rank. All ranks share the work of computing soft labels.
    """
    preparation = Preparation(runs, RunImages(data_dir), on_stage, Deadline(time_limit), {"device": device})
    labeled = [identify(config, preparation.images) for config in configs if uses_soft_labels(config)]
    own = [teacher_config(config) for config in labeled if not config.teacher]
    teachers = list({teacher.name: teacher for teacher in own}.values())
    for teacher in teachers:
        preparation.images.of(teacher)  # all ranks check together that they have the same images

    def train(number: int) -> None:
        with as_single_process():
            preparation.train_teacher(teachers[number])

    for _ in current_ranks().map_in_order(len(teachers), train):
        pass
    for config in labeled:
        teacher_path = Path(config.teacher or runs / teacher_config(config).name)
        preparation.soft_labels(config, teacher_path, preparation.images.of(config)[0])
