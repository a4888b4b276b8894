"""The folder of a run.

config.toml          configuration
metrics.jsonl        metrics, one line per epoch
tensorboard/         the same metrics for TensorBoard, if it is installed
segments.json        device, versions, seconds and memory of each process that trained the run
state.safetensors    state to resume from (weights, optimizer, sums of metrics); deleted when the run is finished
state.previous.safetensors   the previous state, in case the last one is damaged
model.safetensors    the trained network
README.md            its model card
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from smoothcert.checkpoints.checkpoint import save_checkpoint
from smoothcert.checkpoints.tensor_files import hash_tensors, read_tensors, write_tensors
from smoothcert.errors import Notice, SmoothcertError, UsageError, first_line
from smoothcert.models import NamedModel
from smoothcert.runtime.atomic_files import open_locked, write_text
from smoothcert.training.compute import different_fields, with_defaults
from smoothcert.training.config import TrainConfig, read_config, to_toml
from smoothcert.training.run_records import read_metrics, read_segments


class RunFolder:
    """The files of one run. All but TensorBoard's are written atomically: a killed process leaves no partial file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._board: Any = None
        self.config, self.metrics = path / "config.toml", path / "metrics.jsonl"
        self.segments = path / "segments.json"
        self.previous = path / "state.previous.safetensors"
        self.state, self.model, self.card = path / "state.safetensors", path / "model.safetensors", path / "README.md"

    @property
    def finished(self) -> bool:
        """True if the trained network exists."""
        return self.model.is_file()

    @property
    def begun(self) -> bool:
        """True if there is a result of training: metrics, a state or the network."""
        return any(file.is_file() for file in (self.metrics, self.state, self.previous, self.model))

    def read_config(self) -> TrainConfig | None:
        """Read the configuration. Return None if the file does not exist."""
        return read_config(self.config) if self.config.is_file() else None

    def open(self, config: TrainConfig) -> None:
        """Begin or resume a run. Raise if the folder contains a run with a different configuration."""
        self.check(config)
        if not self.begun and self.read_config() != with_defaults(config):
            with self.locked():  # fails if another process is already training, but has not saved anything yet
                self.claim(config)

    def claim(self, config: TrainConfig) -> None:
        """Repeat `open` in the locked folder, which another process may have changed since the first call."""
        self.check(config)
        if not self.begun:
            write_text(self.config, to_toml(with_defaults(config)))

    def check(self, config: TrainConfig) -> None:
        """Raise if the folder contains a run with a different configuration, unless that run has no results yet."""
        if not self.begun:
            return
        before = self.read_config()
        if before is None:
            text = f"{self.path} contains a run, but its configuration, {self.config.name}, is missing"
            raise UsageError(f"{text}; restore that file, or choose another `name`.")
        if fields := different_fields(before, config):
            text = f"{self.path} contains a run with a different configuration (different {', '.join(fields)})"
            raise UsageError(f"{text}; choose another `name`, or move the folder elsewhere.")

    def dataset_path(self) -> str | None:
        """Return the path of the run's dataset, or None if the dataset was given by name or no longer exists."""
        paths = [segment["dataset"] for segment in self.read_segments() if "dataset" in segment]
        return next((path for path in reversed(paths) if Path(path).exists()), None)

    def write_network(self, card: str, model: NamedModel, **about: Any) -> None:
        """Write the network and its model card, and delete the saved states."""
        write_text(self.card, card)
        save_checkpoint(self.model, model, **about)
        self.delete_states()

    def delete_states(self) -> None:
        """Delete the saved states of a finished run."""
        for state in (self.state, self.previous):
            state.unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training the same run, and remove half-written files of a killed process."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open_locked(self.path / ".lock", f"The run in {self.path} is being trained by another process."):
            for part in self.path.glob("*.part"):
                part.unlink(missing_ok=True)
            yield

    def save_state(self, tensors: Mapping[str, Tensor], step: int) -> None:
        """Write the state after `step` steps, and keep the previous state."""
        header = {"step": str(step), "sha256": hash_tensors(tensors)}
        write_tensors(self.state, tensors, header, keep=self.previous)

    def load_state(self) -> tuple[dict[str, Tensor], int] | None:
        """Return the saved tensors and the number of steps taken, or None if nothing was saved.

        If the last state is damaged, return the previous one, with a notice. Raise if no saved state is readable.
        """
        files, errors = [file for file in (self.state, self.previous) if file.is_file()], list[SmoothcertError]()
        for file in files:
            try:
                found = _read_state(file)
            except SmoothcertError as error:
                errors.append(error)
                continue
            if errors:
                text = f"{errors[0]} The run is resumed from the previous state, at step {found[1]:,}."
                warnings.warn(text, Notice, stacklevel=2)
            return found
        if errors:
            damaged = " and ".join(file.name for file in files)
            text = f"{str(errors[0]).rstrip('.')}; delete {damaged} to start over."
            raise SmoothcertError(text) from errors[0]
        return None

    def write_segment(self, segment: Mapping[str, Any]) -> None:
        """Write a process's entry to `segments.json`, and drop entries whose first step is the same or later."""
        kept = [other for other in self.read_segments() if other["first_step"] < segment["first_step"]]
        write_text(self.segments, json.dumps([*kept, dict(segment)], indent=2) + "\n")

    def read_segments(self) -> list[dict[str, Any]]:
        """Return the entries of the processes that have trained the run."""
        return read_segments(self.segments)

    def seconds_since(self, epoch: int, step: int) -> float:
        """Return the seconds spent on `epoch` by earlier processes, which began before `step`."""
        spent = sum(float(part.get("seconds", 0)) for part in self.read_segments() if part["first_step"] < step)
        return max(0.0, spent - sum(float(row["seconds"]) for row in self.read_metrics() if row["epoch"] < epoch))

    def write_metrics(self, line: Mapping[str, Any]) -> None:
        """Append an epoch's metrics, after removing existing lines for this and later epochs."""
        kept = [row for row in self.read_metrics() if row["epoch"] < line["epoch"]]
        write_text(self.metrics, "".join(json.dumps(row) + "\n" for row in [*kept, dict(line)]))
        self._write_to_tensorboard(line)

    def _write_to_tensorboard(self, line: Mapping[str, Any]) -> None:
        if self._board is None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                return
            # Remove the values that a killed process wrote for this epoch and later ones.
            self._board = SummaryWriter(str(self.path / "tensorboard"), purge_step=line["epoch"])
        for name, value in line.items():
            self._board.add_scalar(name, value, line["epoch"])
        self._board.flush()

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the metrics of the epochs so far."""
        return read_metrics(self.metrics)


def _read_state(file: Path) -> tuple[dict[str, Tensor], int]:
    try:
        tensors, header = read_tensors(file)
    except (OSError, SafetensorError) as error:
        raise SmoothcertError(f"{file} cannot be read ({first_line(error)}).") from error
    step = header.get("step", "")
    if not (step.isdecimal() and len(step) <= 15):
        raise SmoothcertError(f"{file} is damaged: expected `step` to be a number, but got {step[:40]!r}.")
    if header.get("sha256", hash_tensors(tensors)) != hash_tensors(tensors):
        raise SmoothcertError(f"{file} is damaged: its values do not match the SHA-256 in its header.")
    return tensors, int(step)


class SilentRunFolder(RunFolder):
    """A run folder for ranks other than 0, which write nothing."""

    def _leave_to_rank0(self, *args: Any, **options: Any) -> Any:
        return None

    open = claim = save_state = write_segment = write_metrics = write_network = _leave_to_rank0
    load_state = _leave_to_rank0  # rank 0 loads the state and broadcasts it

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock nothing."""
        yield
