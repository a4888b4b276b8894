"""What a training run depends on: one frozen value, checked when it is made, read from and written to TOML."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothcert.errors import SmoothcertError, UsageError, unknown_name
from smoothcert.smoothing.precision_names import PRECISIONS

SCHEDULES = ("step", "one-cycle")
LR_DROPS = ("late", "on-time")
FINAL_DROPS = ("none", "one-epoch", "to-the-end")
STEPS = ("split", "whole")
AUGMENTATIONS = ("none", "crop-flip", "resized-crop-flip")
BATCH_NORMS = ("local", "synced")
LABEL_VIEWS = ("clean", "augmented")


def _field(default: Any, help: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A training run. Every field is a line of a recipe and a flag of `smoothcert train`."""

    name: str = _field("run", "name of the run, and of its folder")
    dataset: str = _field("mnist", "data set, .npz file or image folder")
    architecture: str = _field("lenet", "network (see `smoothcert list models`)")
    method: str = _field("gaussian", "training method (see `smoothcert list methods`)")
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict, metadata={"help": "the method's own options"})
    sigma: float = _field(0.25, "standard deviation of the noise")
    seed: int = _field(0, "names every random number of the run")
    epochs: int = _field(150, "passes over the training images")
    batch: int = _field(256, "images in a mini-batch")
    steps: str = _field("split", "split: a step for each noise's share of a mini-batch, as published; whole: one step")
    learning_rate: float = _field(0.01, "learning rate at the start (at the peak, for one-cycle)")
    schedule: str = _field("step", "step: drop every lr_step epochs; one-cycle: up and down once")
    lr_step: int = _field(50, "epochs between drops of the learning rate")
    lr_factor: float = _field(0.1, "factor of each drop")
    lr_drops: str = _field("late", "late: one epoch after the paper's text, as published; on-time: as the text says")
    final_drop: str = _field(
        "none", "one more drop near the end: none, one-epoch (as published), to-the-end (the text)"
    )
    final_drop_epoch: int = _field(85, "epoch of that drop")
    momentum: float = _field(0.9, "momentum of SGD")
    weight_decay: float = _field(1e-4, "weight decay, on all parameters")
    batch_norm: str = _field("local", "local: each process's own statistics; synced: those of the whole mini-batch")
    augmentation: str = _field("none", "none; crop-flip: shift by up to 4 and mirror; resized-crop-flip: ImageNet's")
    resize: int = _field(0, "image folders: what a test image's shorter side is brought to (0: the data set's own)")
    crop: int = _field(0, "image folders: side of the square that is then cut out, and of training views (0: likewise)")
    skip_broken: bool = _field(False, "image folders: let the next image take the place of one that cannot be decoded")
    precision: str = _field("fp32", "fp32, tf32 or bf16")
    teacher: str = _field("", "checkpoint whose votes are the soft labels (default: a Gaussian one, trained first)")
    label_sigma: float = _field(0.25, "noise level of the soft labels (sigma_0)")
    label_samples: int = _field(10_000, "noises an image for the soft labels (N)")
    label_view: str = _field("clean", "soft labels of the image itself, or of one augmented view of it, as published")

    def __post_init__(self) -> None:
        """Refuse values that make no sense, by the name of their flag."""
        for name in ("sigma", "learning_rate", "lr_factor", "label_sigma"):
            _check(self, name, getattr(self, name) > 0, "be > 0")
        for name in ("epochs", "batch", "lr_step", "label_samples"):
            _check(self, name, getattr(self, name) >= 1, "be at least 1")
        for name in ("momentum", "weight_decay", "seed", "resize", "crop"):
            _check(self, name, getattr(self, name) >= 0, "be >= 0")
        for name in ("sigma", "learning_rate", "lr_factor", "label_sigma", "weight_decay"):
            _check(self, name, getattr(self, name) < math.inf, "be finite")
        _check(self, "momentum", self.momentum < 1, "be below 1")
        _check(self, "seed", self.seed < 1 << 63, "be below 2**63")
        choices = {
            "schedule": SCHEDULES,
            "lr_drops": LR_DROPS,
            "final_drop": FINAL_DROPS,
            "steps": STEPS,
            "batch_norm": BATCH_NORMS,
            "augmentation": AUGMENTATIONS,
            "label_view": LABEL_VIEWS,
            "precision": PRECISIONS,
        }
        for name, known in choices.items():
            _check(self, name, getattr(self, name) in known, f"be one of {', '.join(known)}")
        plain = self.name.replace("-", "").replace("_", "").replace(".", "")
        _check(self, "name", plain.isalnum(), "consist of letters, digits, '-', '_' and '.'")

    def learning_rate_at(self, epoch: int, progress: float = 0.0) -> float:
        """Return the learning rate of an epoch (and, for one-cycle, of the share of all steps that is done)."""
        if self.schedule == "one-cycle":
            rising = 0.3
            if progress < rising:
                return self.learning_rate * (0.1 + 0.9 * progress / rising)
            return self.learning_rate * max(1e-3, (1 - progress) / (1 - rising))
        drops = max(0, epoch - 1) // self.lr_step if self.lr_drops == "late" else epoch // self.lr_step
        if self.final_drop == "to-the-end":
            drops += epoch >= self.final_drop_epoch
        elif self.final_drop == "one-epoch":
            drops += epoch == self.final_drop_epoch
        return self.learning_rate * self.lr_factor**drops


def field_groups() -> dict[str, list[str]]:
    """Return the names of the fields of `TrainConfig` by group, for the help of `smoothcert train`."""
    return {
        "run": ["name", "dataset", "architecture", "method", "sigma", "seed", "epochs", "batch", "steps", "precision"],
        "learning rate": ["learning_rate", "schedule", "lr_step", "lr_factor"],
        "learning rate drops": ["lr_drops", "final_drop", "final_drop_epoch"],
        "optimizer": ["momentum", "weight_decay", "batch_norm"],
        "images": ["augmentation", "resize", "crop", "skip_broken"],
        "soft labels": ["teacher", "label_sigma", "label_samples", "label_view"],
    }


def _check(config: TrainConfig, name: str, holds: bool, must: str) -> None:
    if not holds:
        raise UsageError(f"`--{name.replace('_', '-')}` must {must}, got {getattr(config, name)}.")


def to_toml(config: TrainConfig) -> str:
    """Write a configuration in full; JSON's strings, numbers and booleans are TOML's."""
    values = {
        f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.name not in ("options", "method")
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    lines += ["", "[method]", f"name = {json.dumps(config.method)}"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in config.options.items()]
    return "\n".join(lines) + "\n"


def describe(config: TrainConfig) -> dict[str, str]:
    """Return every value of a configuration by its name and the run's.

    >>> describe(TrainConfig(name="small", seed=3))["seed of small"]
    '3'
    """
    lines = [line.split(" = ", 1) for line in to_toml(config).splitlines() if " = " in line]
    return {f"{name} of {config.name}": value for name, value in lines}


def read_config(path: Path, **overrides: Any) -> TrainConfig:
    """Read a configuration from TOML; overrides take the place of single values."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SmoothcertError(f"{path} cannot be read ({error.strerror}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SmoothcertError(f"{path} cannot be read as TOML ({error}).") from error
    if not values:
        raise SmoothcertError(f"{path} says nothing of a run; `smoothcert train NAME --dry-run` shows a recipe.")
    return make_config({"name": path.stem, **values}, str(path), **overrides)


def make_config(values: Mapping[str, Any], where: str, **overrides: Any) -> TrainConfig:
    """Make a configuration from a recipe's values: the table `method` holds its name and its options."""
    plain = dict(values)
    given = plain.pop("method", {})
    if not isinstance(given, str | Mapping):
        raise UsageError(f"{where}: `method` must be a name, or a table with its `name` and options, got {given!r}.")
    method = {"name": given} if isinstance(given, str) else dict(given)
    fields = {field.name: field for field in dataclasses.fields(TrainConfig)}
    foreign = sorted(set(plain) - set(fields) | ({"options"} & set(plain)))
    if foreign:
        hint = " Options of the method stand beside its `name`, in the table `method`." if "options" in foreign else ""
        raise UsageError(f"{where} has unknown fields: {', '.join(foreign)}.{hint}")
    if "name" in method:
        plain["method"] = method.pop("name")
    if unknown := sorted(set(overrides) - set(fields)):
        message = unknown_name("field", unknown[0], set(fields) - {"options"})
        raise UsageError(f"{message} Options of the method go into `options`, a dict.")
    changed = overrides.get("method", plain.get("method")) != plain.get("method")
    plain["options"] = {**({} if changed else method), **overrides.pop("options", {})}
    plain.update(overrides)
    for name, value in plain.items():
        expected = type(fields[name].default)
        if expected is float and isinstance(value, int) and not isinstance(value, bool):
            plain[name] = float(value)
        elif name != "options" and type(value) is not expected:
            place = "" if name in overrides else f"{where}: "
            raise UsageError(f"{place}`{name}` must be of type {expected.__name__}, got {value!r}.")
    return TrainConfig(**plain)
