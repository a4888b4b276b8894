"""The configuration of a training run: immutable, checked on creation, read from and written to TOML."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import tomli_w

from smoothcert.errors import SmoothcertError, UsageError, first_line, quote, suggest, takes, unknown_name
from smoothcert.runtime.typed_files import read_toml
from smoothcert.training.settings import FINGERPRINTS, GROUPS, RunSettings

_DEFAULTS = {field.name: field.default for field in dataclasses.fields(RunSettings)}
_SAMPLING = {name: _DEFAULTS[name] for name in GROUPS["Sampling"]}
_MOST_SAMPLED_EPOCHS = 1 << 16  # random numbers are addressed by counters with 16 bits for the epoch


@dataclass(frozen=True, kw_only=True)
class TrainConfig(RunSettings):
    """The configuration of a training run: the settings in recipes and in the flags of `smoothcert train`.

    All arguments have defaults; `smoothcert train --help` describes their values.

    Args:
        name: Name of the run and of its folder.
        dataset: Dataset, .npz file or image folder.
        architecture: Network architecture.
        method: Training method.
        options: Options of the method.
        sigma: Standard deviation of the noise.
        seed: Seed of all random numbers of the run.
        epochs: Passes over the training images.
        batch: Images per mini-batch.
        steps: `split` mini-batches into several steps, as the published code does, or take `whole` mini-batches.
        learning_rate: Initial learning rate; with a one-cycle schedule or warm-up, the highest.
        schedule: `step`, `one-cycle` or `cosine`.
        lr_step: Epochs between drops of the learning rate.
        lr_factor: Factor that multiplies the learning rate at each drop.
        lr_drops: `late`, as in the published code, or `on-time`, as in the paper.
        final_drop: An additional drop at `final_drop_epoch`: `none`, `one-epoch` or `to-the-end`.
        final_drop_epoch: Epoch of the final drop.
        momentum: Momentum of SGD.
        weight_decay: Weight decay.
        batch_norm: BatchNorm statistics with several processes: `local` or `synced`.
        augmentation: `none`, `crop-flip` or `resized-crop-flip`.
        resize: Image folders: shorter side of a test image after resizing.
        crop: Image folders: side of the square crop.
        skip_broken: Image folders: replace training images that cannot be decoded.
        precision: `fp32`, `tf32` or `bf16`.
        teacher: Checkpoint or run folder of the network that makes the soft labels.
        label_sigma: Noise level of the soft labels.
        label_samples: Noise samples per image for the soft labels.
        label_view: Compute soft labels for `clean` or `augmented` images.
        sampling: Choice of images: `shuffle` or `replacement`.
        sampling_epoch: First epoch that draws with replacement.
        discard_below: Share of correct votes below which an image is dropped.
        discard_samples: Noise samples per image for discarding.
        discard_file: File with another network's shares of correct votes, used to discard images.
        reweight_every: Epochs between updates of the image weights.
        reweight_samples: Noise samples per image for reweighting.
        init: Initial weights.
        optimizer: `sgd` or `adamw`.
        warmup_epochs: Epochs over which the learning rate rises.
        validation: Fraction of the training images to set aside for measuring the accuracy.
        network: Fingerprint of a user's network, recorded by training.
        initial_weights: Fingerprint of the initial weights, recorded by training.

    Raises:
        UsageError: If a value is invalid. The message names the field.

    Example:
        >>> config = TrainConfig(name="small", method="consistency", options={"weight": 5.0}, epochs=10)
        >>> config.epochs, config.learning_rate
        (10, 0.01)
        >>> TrainConfig(sigma=-1.0)
        Traceback (most recent call last):
        smoothcert.errors.UsageError: Expected `sigma` to be > 0, but got -1.0.
    """

    def __post_init__(self) -> None:
        """Check all values."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            kind = Mapping if field.name == "options" else type(field.default)
            fits = isinstance(value, int | float if kind is float else kind)
            if not fits or isinstance(value, bool) is not (kind is bool):
                raise UsageError(f"Expected `{field.name}` to be of type {kind.__name__}, but got {quote(value)}.")
            for holds, must in field.metadata.get("checks", ()):
                if not holds(value):
                    raise UsageError(f"Expected `{field.name}` to {must}, but got {quote(value)}.")
        self._check_sampling()
        self._check_optimization()

    @takes(epoch=Integral, progress=Real)
    def learning_rate_at(self, epoch: int, progress: float = 0.0) -> float:
        """Compute the learning rate.

        Args:
            epoch: Index of the epoch, from 0.
            progress: Fraction of all steps of the run that are done.

        Returns:
            The learning rate.

        Raises:
            UsageError: If an argument is out of range.
        """
        if not (0 <= epoch < 1 << 31 and 0 <= progress <= 1):
            got = f"{quote(epoch)} and {quote(progress)}"
            raise UsageError(f"Expected `epoch` to be from 0 to 2**31 - 1 and `progress` from 0 to 1, but got {got}.")
        one_cycle = self.schedule == "one-cycle"
        rising = 0.3 if one_cycle else self.warmup_epochs / self.epochs  # as a fraction of all steps
        if progress < rising:
            return self.learning_rate * (0.1 + 0.9 * progress / rising)
        if one_cycle:
            return self.learning_rate * max(1e-3, (1 - progress) / (1 - rising))
        if self.schedule == "cosine":
            return self.learning_rate * (1 + math.cos(math.pi * (progress - rising) / (1 - rising))) / 2
        drops = max(0, epoch - 1) // self.lr_step if self.lr_drops == "late" else epoch // self.lr_step
        if self.final_drop == "to-the-end":
            drops += epoch >= self.final_drop_epoch
        elif self.final_drop == "one-epoch":
            drops += epoch == self.final_drop_epoch
        return self.learning_rate * self.lr_factor**drops

    def chooses_images_at(self, epoch: int) -> bool:
        """Return True if the weights for drawing images are set or updated at the start of the given epoch."""
        since = epoch - self.sampling_epoch
        if self.sampling == "shuffle" or since < 0:
            return False
        return since == 0 or (self.reweight_every > 0 and since % self.reweight_every == 0)

    def _check_optimization(self) -> None:
        """Check that optimizer, schedule and warm-up are consistent."""
        if self.warmup_epochs and self.schedule == "one-cycle":
            text = "0 with `schedule='one-cycle'`, which has its own warm-up"
            raise UsageError(f"Expected `warmup_epochs` to be {text}, but got {self.warmup_epochs:g}.")
        if self.warmup_epochs >= self.epochs:
            raise UsageError(
                f"Expected `warmup_epochs` to be below `epochs` ({self.epochs}), but got {self.warmup_epochs:g}."
            )
        default = _DEFAULTS["momentum"]
        if self.optimizer == "adamw" and self.momentum != default:
            text = f"{default} with `optimizer='adamw'`, which does not use it"
            raise UsageError(f"Expected `momentum` to be {text}, but got {self.momentum:g}.")

    def _check_sampling(self) -> None:
        """Check that the sampling settings are consistent."""
        if self.sampling == "shuffle":
            for name, default in _SAMPLING.items():
                if getattr(self, name) != default:
                    need = f"'replacement' when `{name}` is set"
                    raise UsageError(f"Expected `sampling` to be {need}, but got 'shuffle'.")
        elif self.discard_file and not self.discard_below:
            raise UsageError("Expected `discard_below` to be > 0 when `discard_file` is set, but got 0.0.")
        elif self.epochs > _MOST_SAMPLED_EPOCHS:
            most = f"at most {_MOST_SAMPLED_EPOCHS:,} with `sampling='replacement'`"
            raise UsageError(f"Expected `epochs` to be {most}, but got {self.epochs}.")


def without_sampling(config: TrainConfig, **changes: Any) -> TrainConfig:
    """Copy a configuration with default sampling settings (all images, shuffled) and the given changes."""
    return dataclasses.replace(config, **{**_SAMPLING, **changes})


def to_toml(config: TrainConfig) -> str:
    """Convert a configuration to TOML.

    Teachers' names contain a hash of this text. So that teachers keep the names from earlier versions, the text omits
    the sampling fields if images are shuffled, and the fine-tuning fields and fingerprints that have default values.
    """
    added = (*GROUPS["Fine-tuning"], *FINGERPRINTS)
    unused = {name for name in added if getattr(config, name) == _DEFAULTS[name]}
    omitted = {"options", "method", *unused, *(_SAMPLING if config.sampling == "shuffle" else ())}
    values = {name: getattr(config, name) for name in _DEFAULTS if name not in omitted}
    try:
        return tomli_w.dumps({**values, "method": {"name": config.method, **config.options}})
    except TypeError as error:
        text = f"only numbers, strings and booleans, but got another type ({first_line(error)})"
        raise UsageError(f"Expected `options` to contain {text}.") from None


def describe(config: TrainConfig) -> dict[str, str]:
    """Return the values of a configuration, keyed by field and run name.

    >>> describe(TrainConfig(name="small", seed=3))["seed of small"]
    '3'
    """
    lines = [line.split(" = ", 1) for line in to_toml(config).splitlines() if " = " in line]
    return {f"{name} of {config.name}": value for name, value in lines}


def read_config(path: Path, **overrides: Any) -> TrainConfig:
    """Read a configuration from a TOML file. `overrides` replace individual fields and `options` entries."""
    values = read_toml(path)
    if not values:
        raise SmoothcertError(
            f"{path} has no settings; `smoothcert train RECIPE --dry-run` prints a recipe as an example."
        )
    return make_config({"name": path.stem, **values}, str(path), **overrides)


def make_config(values: Mapping[str, Any], where: str, **overrides: Any) -> TrainConfig:
    """Create a configuration from the values of a recipe.

    The entry `method` is a name, or a table with a name and options. `where` describes the source of the values in
    error messages.
    """
    plain = dict(values)
    method_entry = plain.pop("method", {})
    if not isinstance(method_entry, str | Mapping):
        raise UsageError(f"Expected method in {where} to be a name or a table, but got {method_entry!r}.")
    options = {"name": method_entry} if isinstance(method_entry, str) else dict(method_entry)
    fields = _DEFAULTS.keys() - {"options"}
    if unknown := sorted(plain.keys() - fields):
        hint = " Put options of the method into the table [method], next to its name." if "options" in unknown else ""
        near = suggest(unknown[0], fields)
        raise UsageError(f"{where} has unknown fields: {', '.join(unknown)}{near if not hint else '.'}{hint}")
    if "name" in options:
        plain["method"] = options.pop("name")
    if unknown := sorted(overrides.keys() - _DEFAULTS.keys()):
        message = unknown_name("field", unknown[0], fields)
        raise UsageError(f"{message} Put the method's options in the dict `options`.")
    own = overrides.pop("options", {})
    if not isinstance(own, Mapping):
        raise UsageError(f"Expected `options` to be of type Mapping, but got {quote(own)}.")
    if overrides.get("method", plain.get("method")) != plain.get("method"):
        options = {}  # the recipe's options belong to another method
    plain = {name: _plain(value) for name, value in {**plain, **overrides}.items()}
    plain["options"] = {name: _plain(value) for name, value in {**options, **own}.items()}
    for name, value in plain.items():
        expected = type(_DEFAULTS[name])
        if expected is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
            plain[name] = float(value)
        elif name != "options" and type(value) is not expected:
            entry = f"`{name}`" if name in overrides else f"{name} in {where}"
            raise UsageError(f"Expected {entry} to be of type {expected.__name__}, but got {quote(value)}.")
    return TrainConfig(**plain)


def _plain(value: Any) -> Any:
    """Convert numbers, such as NumPy scalars, and paths to types that TOML supports."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)
