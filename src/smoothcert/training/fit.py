"""Train one run, or several runs that take turns."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import torch

from smoothcert.data.image_data import ImageData
from smoothcert.errors import SmoothcertError
from smoothcert.runtime.deadline import Deadline, OutOfTimeError
from smoothcert.runtime.failures import raise_together
from smoothcert.training.config import TrainConfig
from smoothcert.training.loop import OnProgress, train_loop
from smoothcert.training.run_folder import RunFolder
from smoothcert.training.setup import TrainingRun, setup_run
from smoothcert.training.stepper import new_stream


def fit(
    config: TrainConfig,
    folder: Path,
    train: ImageData,
    test: ImageData | None,
    *,
    on_progress: OnProgress | None = None,
    time_limit: float | None = None,
    **options: Any,
) -> Path:
    """Train one run and return the path of its trained network.

    A finished run is left as it is, an interrupted run is resumed. `options` are keyword arguments of `setup_run`.
    After `time_limit` seconds, the state is saved and OutOfTimeError is raised. The first interrupt (Ctrl-C) also saves
    the state, then raises KeyboardInterrupt; a second interrupt raises it at once.
    """
    run = setup_run(config, folder, train, test, **options)
    if run is not None:
        fit_together([run], time_limit, on_progress)
    return RunFolder(folder).model


def fit_together(
    runs: Sequence[TrainingRun], time_limit: float | None = None, on_progress: OnProgress | None = None
) -> None:
    """Train several runs at once, one step of each in turn. On a CUDA device, each run has its own stream.

    A run that fails does not stop the others, and its error is raised at the end. With several ranks, the error is
    raised at once.
    """
    deadline, errors = Deadline(time_limit), list[SmoothcertError]()
    devices = [run.stepper.device for run in runs if run.stepper.device.type == "cuda"]
    with deadline.heeding_interrupts(), torch.random.fork_rng(devices[:1]), ExitStack() as open_loops:
        lanes = []
        for run in runs:
            loop = open_loops.enter_context(closing(train_loop(run, deadline, on_progress)))
            lanes.append((run, loop, new_stream(run.stepper.device)))
        if devices:
            torch.cuda.synchronize()
        while lanes:
            for lane in list(lanes):
                run, loop, stream = lane
                try:
                    with torch.cuda.stream(stream):
                        if next(loop, None) is None:
                            lanes.remove(lane)
                except SmoothcertError as error:
                    if run.ranks.size > 1 and not isinstance(error, OutOfTimeError):
                        raise  # the other ranks may have had no error and would wait for this rank
                    errors.append(error)
                    lanes.remove(lane)
        raise_together(errors)
