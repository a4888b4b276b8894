"""The remaining work of a table, with times estimated from short trials."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from smoothcert.paper.jobs import Job, JobStatus, Workplace
from smoothcert.paper.timing import estimate_certification, estimate_labels, estimate_steps
from smoothcert.training.config import TrainConfig
from smoothcert.training.run_data import load_images
from smoothcert.training.run_folder import RunFolder
from smoothcert.training.teachers import teacher_config, uses_soft_labels


@dataclass(frozen=True)
class PlanLine:
    """The remaining work of a run or teacher: its stages, the images to certify or label, and the seconds."""

    run: str
    left: str
    images: int
    seconds: float


def plan(
    jobs: Sequence[Job], place: Workplace, device: torch.device, on_trial: Callable[[str], None]
) -> Iterator[PlanLine]:
    """Yield a line for every run, preceded by one for its teacher if that is not finished.

    Runs with the same network, method and length are timed once, as if trained alone. `on_trial` is called with the
    name of a run before it is timed.
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
        yield PlanLine(config.name, _remaining_stages(item), item.total - item.images, spent)


def _remaining_stages(item: JobStatus) -> str:
    return "done" if item.finished else "certify" if item.trained else "train, certify"


class _Trials:
    """Times each kind of work once, and remembers the result."""

    def __init__(self, place: Workplace, device: torch.device, on_trial: Callable[[str], None]) -> None:
        self._place, self._device, self._on_trial = place, device, on_trial
        self._steps: dict[Any, tuple[int, float]] = {}
        self._images: dict[Any, float] = {}

    def teacher(self, config: TrainConfig, name: str) -> Iterator[PlanLine]:
        """Yield the remaining work of a teacher and its soft labels, if there is any."""
        training, labels = estimate_labels(config, self._place.data_dir, self._device, runs=self._place.runs)
        if training or labels:
            images = len(load_images(config, "train", self._place.data_dir))
            yield PlanLine(name, "train, label" if training else "label", images, training + labels)

    def training(self, config: TrainConfig) -> float:
        """Return the seconds for the remaining steps of a run."""
        kind = (config.dataset, config.architecture, config.method, str(config.options), config.epochs, config.batch)
        if kind not in self._steps:
            self._on_trial(config.name)
            self._steps[kind] = estimate_steps(config, self._place.data_dir, self._device)
        steps, seconds = self._steps[kind]
        _, done = RunFolder(self._place.runs / config.name).load_state() or ({}, 0)
        return (steps - done) * seconds

    def certification(self, job: Job) -> float:
        """Return the seconds per certified image."""
        config, images = job.config, self._place.test_sets(job)[0]
        kind = (config.dataset, config.architecture)
        if kind not in self._images:
            self._images[kind] = estimate_certification(config, images, self._device, self._place.n)
        return self._images[kind]
