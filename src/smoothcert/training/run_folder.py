"""A run's folder: configuration, metrics, the state to resume from, and in the end the network and its card.

config.toml          what was asked for
metrics.jsonl        one line an epoch
tensorboard/         the same for TensorBoard, where that is installed
segments.json        who computed it: device, versions, seconds and memory of each start
state.safetensors    weights, momentum and sums, until the run is finished
model.safetensors    the network, once it is
README.md            its card
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
from smoothcert.training.config import TrainConfig, read_config, to_toml


class RunFolder:
    """The files of one run; each is replaced in one step, so that a kill leaves the old one or the new."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._board: Any = None
        self.config, self.metrics = path / "config.toml", path / "metrics.jsonl"
        self.segments = path / "segments.json"
        self.state, self.model, self.card = path / "state.safetensors", path / "model.safetensors", path / "README.md"

    @property
    def finished(self) -> bool:
        """Whether the network is there."""
        return self.model.is_file()

    def read_config(self) -> TrainConfig | None:
        """Return the configuration of a run that has begun."""
        return read_config(self.config) if self.config.is_file() else None

    def open(self, config: TrainConfig) -> None:
        """Begin or continue a run; a folder with another configuration is refused."""
        if self.config.is_file():
            before = read_config(self.config)
            if before != config:
                lines = set(to_toml(config).splitlines()) ^ set(to_toml(before).splitlines())
                fields = sorted({line.split(" = ")[0] for line in lines if line})
                text = f"{self.path} holds a run of another configuration (other {', '.join(fields)})"
                raise UsageError(f"{text}; choose another `--name`, or move it away.")
        else:
            write_text(self.config, to_toml(config))

    def write_network(self, card: str, model: Classifier, **about: Any) -> None:
        """Write the network and its card; the state to resume from is no longer needed."""
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
        """Write what is needed to resume after `step` steps."""
        write_tensors(self.state, tensors, {"step": str(step)})

    def load_state(self) -> tuple[dict[str, Tensor], int] | None:
        """Return the tensors and the number of steps taken, or None where nothing was saved yet."""
        if not self.state.is_file():
            return None
        try:
            tensors, header = read_tensors(self.state)
            return tensors, int(header["step"])
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise SmoothcertError(f"{self.state} is damaged ({error}); delete it to begin anew.") from error

    def write_segment(self, segment: Mapping[str, Any]) -> None:
        """Add a start of the run, or bring it up to date; starts are told apart by their first step."""
        kept = [other for other in self.read_segments() if other["first_step"] < segment["first_step"]]
        write_text(self.segments, json.dumps([*kept, dict(segment)], indent=2) + "\n")

    def read_segments(self) -> list[dict[str, Any]]:
        """Return the starts of the run so far."""
        return _parse(self.segments, self.segments.read_text(encoding="utf-8")) if self.segments.is_file() else []

    def seconds_since(self, epoch: int, step: int) -> float:
        """Return what the starts before a step spent on an epoch: their time without that of the epochs before."""
        starts = sum(float(part.get("seconds", 0)) for part in self.read_segments() if part["first_step"] < step)
        return max(0.0, starts - sum(float(row["seconds"]) for row in self.read_metrics() if row["epoch"] < epoch))

    def write_metrics(self, line: Mapping[str, Any]) -> None:
        """Append an epoch's metrics; an older line of the same epoch, or a later one, gives way."""
        kept = [row for row in self.read_metrics() if row["epoch"] < line["epoch"]]
        write_text(self.metrics, "".join(json.dumps(row) + "\n" for row in [*kept, dict(line)]))
        self._show(line)

    def _show(self, line: Mapping[str, Any]) -> None:
        """Pass metrics on to TensorBoard."""
        if self._board is None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                return
            # What a killed run had shown of this epoch and later ones is withdrawn.
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
        raise SmoothcertError(f"{path} is damaged ({error}); delete it to go on without it.") from error


class SilentRunFolder(RunFolder):
    """A run's folder as a rank that does not write sees it: rank 0 does, for all."""

    def open(self, config: TrainConfig) -> None:
        """Leave it to rank 0, which refuses another configuration."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Leave the lock to rank 0."""
        yield

    def save_state(self, tensors: Mapping[str, Tensor], step: int) -> None:
        """Every rank has the same state; one copy is enough."""

    def load_state(self) -> None:
        """Rank 0 reads it and sends it on."""

    def write_segment(self, segment: Mapping[str, Any]) -> None:
        """Write nothing."""

    def write_metrics(self, line: Mapping[str, Any]) -> None:
        """Write nothing."""

    def write_network(self, card: str, model: Classifier, **about: Any) -> None:
        """Write nothing."""
