"""Training one run, or several at once, from the outside; what a run does is in `smoothcert.training.loop`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smoothcert.data.image_data import ImageData
from smoothcert.errors import SmoothcertError
from smoothcert.runtime.deadline import Deadline
from smoothcert.runtime.failures import raise_together
from smoothcert.training.config import TrainConfig
from smoothcert.training.loop import OnProgress, Training
from smoothcert.training.packed_labels import PackedLabels
from smoothcert.training.stepper import new_stream


def fit(
    config: TrainConfig,
    folder: Path,
    train: ImageData,
    test: ImageData,
    *,
    soft: Tensor | PackedLabels | None = None,
    device: torch.device | str = "cpu",
    compile: bool | None = None,
    workers: int | None = None,
    on_progress: OnProgress | None = None,
    time_limit: float | None = None,
) -> Path:
    """Train a network and return its file; goes on where an earlier call was interrupted, to the same weights.

    A finished run is left as it is, one of another configuration is refused. `soft` holds the training images' soft
    labels [images, classes], for a method that uses them. Steps are compiled where that pays, unless `compile` says
    so or not. `workers` processes decode image folders (default: this process's share of the cores). After `time_limit`
    seconds the state is saved and OutOfTimeError raised; after an interrupt (Ctrl-C) likewise, and KeyboardInterrupt. A
    second one is raised at once.
    """
    options: dict[str, Any] = {"device": device, "compile": compile, "workers": workers}
    run = Training(config, folder, train, test, soft=soft, on_progress=on_progress, **options)
    fit_together([run], time_limit)
    return run.folder.model


def fit_together(runs: Sequence[Training], time_limit: float | None = None) -> None:
    """Train several runs at once, a step of each in turn; on a CUDA device each has a stream of its own.

    One that fails does not stop the others; what went wrong is raised at the end.
    """
    deadline, errors = Deadline(time_limit), list[SmoothcertError]()
    with deadline.heeding_interrupts(), ExitStack() as open_steps:
        left = []
        for run in runs:
            if not run.finished:
                run.deadline = deadline
                left.append((run, open_steps.enter_context(closing(run.steps())), new_stream(run.device)))
        if any(run.on_gpu for run, *_ in left):
            torch.cuda.synchronize()
        while left:
            for lane in list(left):
                run, steps, stream = lane
                try:
                    with torch.cuda.stream(stream):
                        if next(steps, None) is None:
                            left.remove(lane)
                except SmoothcertError as error:
                    if not run.survives(error):
                        raise
                    errors.append(error)
                    left.remove(lane)
        raise_together(errors)
