"""Write to the run folder during training."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from smoothcert.data.registry import path_of
from smoothcert.models import UserModel
from smoothcert.runtime.environment import describe_environment
from smoothcert.training.model_card import model_card
from smoothcert.training.run_state import take_state
from smoothcert.training.setup import TrainingRun

_SECONDS_BETWEEN_SAVES = 60.0


class RunLog:
    """Writes metrics after every epoch, the state and elapsed time regularly, and the network at the end."""

    def __init__(self, run: TrainingRun) -> None:
        self.run, self.folder = run, run.folder
        self.environment = describe_environment(run.stepper.device)
        self._segment = {"first_step": run.start, "processes": run.ranks.size, **self.environment}
        if path := path_of(run.config.dataset):  # so that the dataset is found from other working directories
            self._segment["dataset"] = str(path)
        self._began = self._epoch_began = self._saved = time.monotonic()
        epoch, steps_of_epoch = divmod(run.start, len(run.plan))
        if steps_of_epoch:  # include the time that earlier processes spent on this epoch
            self._epoch_began -= run.folder.seconds_since(epoch, run.start)

    @property
    def save_is_due(self) -> bool:
        """True if the last save is more than a minute old."""
        return time.monotonic() - self._saved > _SECONDS_BETWEEN_SAVES

    def write_epoch(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Add the sampler's metrics and the duration in seconds to an epoch's metrics; write and return them."""
        timed = {**metrics, **self.run.sampler.metrics(), "seconds": round(time.monotonic() - self._epoch_began, 3)}
        self.folder.write_metrics(timed)
        self._epoch_began = time.monotonic()
        return timed

    def save(self, steps: int) -> None:
        """Write the state after `steps` steps, the time this process has spent and, on a GPU, its peak memory."""
        self.folder.save_state(take_state(self.run.stepper, self.run.sampler), steps)
        self._saved = time.monotonic()
        spent: dict[str, Any] = {"seconds": round(self._saved - self._began, 3)}
        if (device := self.run.stepper.device).type == "cuda":
            spent["peak_memory"] = torch.cuda.max_memory_allocated(device)  # of all runs in this process
        self.folder.write_segment({**self._segment, **spent})

    def write_network(self) -> None:
        """Write the network and its model card. The run is then finished."""
        config, model = self.run.config, self.run.model
        shape = model.input_shape if isinstance(model, UserModel) else None
        self.folder.write_network(
            model_card(config, self.folder.read_metrics(), self.environment, shape),
            model,
            name=config.name,
            dataset=self.run.dataset,
            sigma=config.sigma,
            method=config.method,
            epoch=config.epochs,
            seed=config.seed,
        )
