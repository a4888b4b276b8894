"""The remaining work of a table, with times estimated from short trials."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from smoothcert.paper.jobs import Job, Workplace
from smoothcert.paper.timing import estimate_certification, estimate_labels, estimate_steps
from smoothcert.training.run_data import load_images
from smoothcert.training.run_folder import RunFolder
from smoothcert.training.teachers import teacher_config, uses_soft_labels


@dataclass(frozen=True)
class PlanLine:
    """The remaining work of a run or teacher: stages (`left`), images to certify or label, and estimated seconds."""

    run: str
    left: str
    images: int
    seconds: float


def plan(
    jobs: Sequence[Job], place: Workplace, device: torch.device, on_trial: Callable[[str], None]
) -> Iterator[PlanLine]:
    """Yield a line for every run, preceded by a line for its teacher if the teacher or its soft labels are missing.

    Runs with the same dataset, network, method, options, epochs and batch size are timed once, as if trained alone.
    `on_trial` is called with the name of a run or teacher before its training is timed.
    """
    steps_and_seconds, seconds_per_image = dict[Any, tuple[int, float]](), dict[Any, float]()
    teachers = set[str]()
    for item in map(place.progress, jobs):
        config, images_left, spent = item.job.config, item.total - item.images, 0.0
        if not item.trained:
            name = teacher_config(config).name
            if uses_soft_labels(config) and name not in teachers:
                teachers.add(name)
                on_trial(name)
                training, labels = estimate_labels(config, place.data_dir, device, place.runs)
                if training or labels:
                    images = len(load_images(config, "train", place.data_dir))
                    yield PlanLine(name, "train, label" if training else "label", images, training + labels)
            options = str(config.options)
            kind = (config.dataset, config.architecture, config.method, options, config.epochs, config.batch)
            if kind not in steps_and_seconds:
                on_trial(config.name)
                steps_and_seconds[kind] = estimate_steps(config, place.data_dir, device)
            steps, seconds = steps_and_seconds[kind]
            _, done = RunFolder(place.runs / config.name).load_state() or ({}, 0)
            spent += (steps - done) * seconds
        if images_left:
            network, data = (config.dataset, config.architecture), place.test_sets(item.job)[0]
            if network not in seconds_per_image:
                seconds_per_image[network] = estimate_certification(config, data, device, place.n)
            spent += seconds_per_image[network] * images_left
        stages = "done" if item.finished else "certify" if item.trained else "train, certify"
        yield PlanLine(config.name, stages, images_left, spent)
