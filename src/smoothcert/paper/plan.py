"""What is left of a table's runs, and the time that trials of a few seconds promise for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from smoothcert.paper.jobs import Job, Progress, Workplace
from smoothcert.paper.timing import estimate_certification, estimate_labels, estimate_steps
from smoothcert.training.config import TrainConfig
from smoothcert.training.run_data import load_images
from smoothcert.training.run_folder import RunFolder
from smoothcert.training.teachers import teacher_config, uses_soft_labels


@dataclass(frozen=True)
class PlanLine:
    """A run, or a teacher, with what is left of it: the images it still has to certify or label, and the seconds."""

    run: str
    left: str
    images: int
    seconds: float


def plan(
    jobs: Sequence[Job], place: Workplace, device: torch.device, on_trial: Callable[[str], None]
) -> Iterator[PlanLine]:
    """Yield a line for every run, before it one for a teacher it still needs.

    Runs are timed one at a time; those of one network, method and length promise the same. `on_trial` is called with
    the name of what is about to be timed.
    """
    trials = _Trials(place, device, on_trial)
    teachers = set[str]()
    for item in map(place.progress, jobs):
        config, spent = item.job.config, 0.0
        if not item.trained:
            name = teacher_config(config).name
            if uses_soft_labels(config) and name not in teachers:
                teachers.add(name)
                on_trial(name)
                yield from trials.teacher(config, name)
            spent += trials.training(config)
        if item.images < item.total:
            spent += trials.certification(item.job) * (item.total - item.images)
        yield PlanLine(config.name, _state(item), item.total - item.images, spent)


def _state(item: Progress) -> str:
    return "done" if item.finished else "certify" if item.trained else "train, certify"


class _Trials:
    """Times each kind of work once."""

    def __init__(self, place: Workplace, device: torch.device, on_trial: Callable[[str], None]) -> None:
        self._place, self._device, self._on_trial = place, device, on_trial
        self._steps: dict[Any, tuple[int, float]] = {}
        self._images: dict[Any, float] = {}

    def teacher(self, config: TrainConfig, name: str) -> Iterator[PlanLine]:
        """Yield what is left of a teacher and its soft labels, if anything is."""
        training, labels = estimate_labels(config, self._place.data_dir, self._device, runs=self._place.runs)
        if training or labels:
            images = len(load_images(config, "train", self._place.data_dir))
            yield PlanLine(name, "train, label" if training else "label", images, training + labels)

    def training(self, config: TrainConfig) -> float:
        """Return the seconds of the steps that a run has left."""
        kind = (config.dataset, config.architecture, config.method, str(config.options), config.epochs, config.batch)
        if kind not in self._steps:
            self._on_trial(config.name)
            self._steps[kind] = estimate_steps(config, self._place.data_dir, self._device)
        steps, seconds = self._steps[kind]
        _, done = RunFolder(self._place.runs / config.name).load_state() or ({}, 0)
        return (steps - done) * seconds

    def certification(self, job: Job) -> float:
        """Return the seconds of an image's certificate."""
        config, images = job.config, self._place.test_sets(job)[0]
        kind = (config.dataset, config.architecture)
        if kind not in self._images:
            self._images[kind] = estimate_certification(config, images, self._device, self._place.n)
        return self._images[kind]
