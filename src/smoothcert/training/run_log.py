"""What a start of a run writes into its folder as it goes, and when."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from smoothcert.models import Classifier
from smoothcert.runtime.environment import describe_environment
from smoothcert.training.config import TrainConfig
from smoothcert.training.model_card import model_card
from smoothcert.training.run_folder import RunFolder
from smoothcert.training.run_state import take_state
from smoothcert.training.stepper import Stepper

_SECONDS_BETWEEN_SAVES = 60.0


class Logbook:
    """Writes metrics after every epoch, the state between two steps, the time that went by, and the network."""

    def __init__(
        self, folder: RunFolder, device: torch.device, *, processes: int, first_step: int, epoch_steps: int
    ) -> None:
        self.folder, self.device = folder, device
        self._segment = {"first_step": first_step, "processes": processes, **describe_environment(device)}
        self._began = self._epoch_began = self._saved = time.monotonic()
        if first_step % epoch_steps:  # an epoch that an earlier start began takes as long as all of it
            self._epoch_began -= folder.seconds_since(first_step // epoch_steps, first_step)

    @property
    def save_is_due(self) -> bool:
        """Whether more would be lost by a kill than anyone likes to do again."""
        return time.monotonic() - self._saved > _SECONDS_BETWEEN_SAVES

    def write_epoch(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Write an epoch's metrics and return them, with the time it took."""
        timed = {**metrics, "seconds": round(time.monotonic() - self._epoch_began, 3)}
        self.folder.write_metrics(timed)
        self._epoch_began = time.monotonic()
        return timed

    def save(self, stepper: Stepper, steps: int) -> None:
        """Write the state after so many steps; with it the time of this start and, on a GPU, its process's memory."""
        self.folder.save_state(take_state(stepper), steps)
        self._saved = time.monotonic()
        spent: dict[str, Any] = {"seconds": round(self._saved - self._began, 3)}
        if self.device.type == "cuda":
            spent["peak_memory"] = torch.cuda.max_memory_allocated(self.device)  # of all runs in it
        self.folder.write_segment({**self._segment, **spent})

    def write_network(self, config: TrainConfig, model: Classifier, dataset: str) -> None:
        """Write the network and its card, which ends the run."""
        self.folder.write_network(
            model_card(config, self.folder.read_metrics(), describe_environment(self.device)),
            model,
            name=config.name,
            dataset=dataset,
            sigma=config.sigma,
            method=config.method,
            epoch=config.epochs,
            seed=config.seed,
        )
