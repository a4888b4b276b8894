"""The folder of a run.

config.toml          configuration
metrics.jsonl        metrics, one line per epoch
tensorboard/         the same for TensorBoard, if that is installed
segments.json        device, versions, seconds and memory of each process that trained the run
state.safetensors    weights, momentum and sums to resume from, until the run is finished
model.safetensors    the trained network
README.md            its model card
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from smoothcert.checkpoints.checkpoint import read_tensors, save_checkpoint, write_tensors
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.models import Classifier
from smoothcert.runtime.atomic_files import open_locked, write_text
from smoothcert.training.compute import different_fields, with_defaults
from smoothcert.training.config import TrainConfig, read_config, to_toml


class RunFolder:
    """The files of one run. Each is replaced atomically, so that a kill leaves the old file or the new one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._board: Any = None
        self.config, self.metrics = path / "config.toml", path / "metrics.jsonl"
        self.segments = path / "segments.json"
        self.state, self.model, self.card = path / "state.safetensors", path / "model.safetensors", path / "README.md"

    @property
    def finished(self) -> bool:
        """True if the trained network exists."""
        return self.model.is_file()

    @property
    def begun(self) -> bool:
        """True if there is a result of training: metrics, a state or the network."""
        return any(file.is_file() for file in (self.metrics, self.state, self.model))

    def read_config(self) -> TrainConfig | None:
        """Return the configuration, or None if there is none."""
        return read_config(self.config) if self.config.is_file() else None

    def open(self, config: TrainConfig) -> None:
        """Begin or resume a run. Raise if the folder holds a run with a different configuration."""
        self.check(config)
        whole = with_defaults(config)
        if not self.begun and self.read_config() != whole:
            with self.locked():  # another process may have begun to train, and have saved nothing yet
                write_text(self.config, to_toml(whole))

    def check(self, config: TrainConfig) -> None:
        """Raise if the folder holds a run with a different configuration, unless it failed before it began."""
        if not self.begun or (before := self.read_config()) is None:
            return
        if fields := different_fields(before, config):
            text = f"{self.path} holds a run with a different configuration (different {', '.join(fields)})"
            raise UsageError(f"{text}; choose another `name`, or move the folder elsewhere.")

    def write_network(self, card: str, model: Classifier, **about: Any) -> None:
        """Write the network and its card, and delete the state."""
        write_text(self.card, card)
        save_checkpoint(self.model, model, **about)
        self.state.unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training the same run."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open_locked(self.path / ".lock", f"{self.path} is being trained by another process."):
            yield

    def save_state(self, tensors: Mapping[str, Tensor], step: int) -> None:
        """Write the state after `step` steps."""
        write_tensors(self.state, tensors, {"step": str(step)})

    def load_state(self) -> tuple[dict[str, Tensor], int] | None:
        """Return the saved tensors and the number of steps taken, or None if nothing was saved."""
        if not self.state.is_file():
            return None
        try:
            tensors, header = read_tensors(self.state)
            return tensors, int(header["step"])
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise SmoothcertError(f"{self.state} is damaged ({error}); delete it to start over.") from error

    def write_segment(self, segment: Mapping[str, Any]) -> None:
        """Add or update the entry of a process, identified by its first step, and drop later entries."""
        kept = [other for other in self.read_segments() if other["first_step"] < segment["first_step"]]
        write_text(self.segments, json.dumps([*kept, dict(segment)], indent=2) + "\n")

    def read_segments(self) -> list[dict[str, Any]]:
        """Return the entries of the processes so far."""
        return _parse(self.segments, self.segments.read_text(encoding="utf-8")) if self.segments.is_file() else []

    def seconds_since(self, epoch: int, step: int) -> float:
        """Return the seconds that earlier processes, which began before `step`, spent on `epoch`."""
        spent = sum(float(part.get("seconds", 0)) for part in self.read_segments() if part["first_step"] < step)
        return max(0.0, spent - sum(float(row["seconds"]) for row in self.read_metrics() if row["epoch"] < epoch))

    def write_metrics(self, line: Mapping[str, Any]) -> None:
        """Append an epoch's metrics. Lines of the same or later epochs are dropped."""
        kept = [row for row in self.read_metrics() if row["epoch"] < line["epoch"]]
        write_text(self.metrics, "".join(json.dumps(row) + "\n" for row in [*kept, dict(line)]))
        self._write_to_tensorboard(line)

    def _write_to_tensorboard(self, line: Mapping[str, Any]) -> None:
        if self._board is None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                return
            # Remove what a killed process wrote for this epoch and later ones.
            self._board = SummaryWriter(str(self.path / "tensorboard"), purge_step=line["epoch"])
        for name, value in line.items():
            self._board.add_scalar(name, value, line["epoch"])
        self._board.flush()

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the metrics of the epochs so far."""
        if not self.metrics.is_file():
            return []
        return [_parse(self.metrics, line) for line in self.metrics.read_text(encoding="utf-8").splitlines()]


def _parse(path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SmoothcertError(f"{path} is damaged ({error}); delete it to resume without it.") from error


class SilentRunFolder(RunFolder):
    """The folder of a run on a rank other than 0, which writes nothing."""

    def _leave_to_rank0(self, *args: Any, **options: Any) -> Any:
        return None

    open = save_state = write_segment = write_metrics = write_network = _leave_to_rank0
    load_state = _leave_to_rank0  # rank 0 reads the state and sends it

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock nothing."""
        yield
