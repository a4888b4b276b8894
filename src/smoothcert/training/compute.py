"""Values derived from configurations: a run's method, its cost in forward passes, and how two runs differ."""

from __future__ import annotations

import dataclasses
from contextlib import suppress

import torch

from smoothcert.errors import UsageError
from smoothcert.methods import Method, create_method
from smoothcert.training.config import TrainConfig
from smoothcert.training.passes import passes_per_input, votes_per_image
from smoothcert.training.settings import FINGERPRINTS

_PASSES_THAT_PAY = 150e6  # forward passes above which compilation saves time; measured, see benchmarks/README.md
_ON_KERNELS = ("cifar_resnet110", "bf16")  # runs on our kernels: compilation takes a minute and saves 2 %


def method_of(config: TrainConfig) -> Method:
    """Create the method of a run. Raise if its options are invalid."""
    return create_method(config.method, config.sigma, config.options)


def with_defaults(config: TrainConfig) -> TrainConfig:
    """Fill in defaults of the method's options, so that implied and explicit defaults compare equal.

    >>> with_defaults(TrainConfig(method="consistency", options={"weight": 5})).options
    {'num_noises': 2, 'weight': 5.0, 'entropy_weight': 0.5}
    """
    method = method_of(config)
    fields = [field for field in dataclasses.fields(method) if field.name != "sigma"]
    values = {field.name: getattr(method, field.name) for field in fields}
    numbers = {field.name: float(values[field.name]) for field in fields if isinstance(field.default, float)}
    known = {name: value for name, value in (values | numbers).items() if value is not None}  # TOML has no null
    return dataclasses.replace(config, options=known)


def different_fields(before: TrainConfig, config: TrainConfig) -> list[str]:
    """Return the names of the fields and options in which two configurations differ, with defaults filled in.

    Fingerprints missing from either configuration are ignored: earlier versions recorded none, and the file of initial
    weights may have been deleted.

    >>> default = TrainConfig(method="consistency")
    >>> different_fields(default, TrainConfig(method="consistency", options={"weight": 10.0}, seed=1))
    ['seed']
    """
    with suppress(UsageError):  # the method may be unregistered, or have changed
        before = with_defaults(before)
    values, others = (
        {**dataclasses.asdict(whole), **(whole.options if before.method == config.method else {})}
        for whole in (before, with_defaults(config))
    )
    names = sorted((values.keys() | others.keys()) - {"options"})
    unknown = {name for name in FINGERPRINTS if not (values[name] and others[name])}
    return [name for name in names if name not in unknown and values.get(name) != others.get(name)]


def split_of(config: TrainConfig) -> int:
    """Return the number of steps per mini-batch."""
    return method_of(config).split if config.steps == "split" else 1


def passes(method: Method) -> int:
    """Return the cost of a training step per noisy input, in forward passes."""
    return passes_per_input(method.name, int(getattr(method, "attack_steps", 0)))


def mean_passes(config: TrainConfig) -> float:
    """Return the cost of a training step per noisy input, in forward passes, averaged over the epochs of a run."""
    method = method_of(config)
    return sum(passes(method.at_epoch(epoch)) for epoch in range(config.epochs)) / config.epochs


def step_passes(config: TrainConfig) -> float:
    """Return the cost of a training step on all its inputs, in forward passes, averaged over the epochs of a run."""
    images = max(1, config.batch // split_of(config))
    return images * getattr(method_of(config), "num_noises", 1) * mean_passes(config)


def epoch_passes(config: TrainConfig) -> float:
    """Return the mean cost of an epoch per training image, in forward passes, including votes to choose images."""
    steps = getattr(method_of(config), "num_noises", 1) * mean_passes(config)
    return steps + votes_per_image(config) / config.epochs


def pays_to_compile(config: TrainConfig, steps: int, device: torch.device) -> bool:
    """Return True if compiling the training step saves time over `steps` steps on a device."""
    if device.type != "cuda" or (config.architecture, config.precision) == _ON_KERNELS:
        return False
    return steps * step_passes(config) >= _PASSES_THAT_PAY
