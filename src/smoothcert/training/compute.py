"""Values derived from configurations: a run's method, steps and cost, and how two runs differ."""

from __future__ import annotations

import dataclasses
from contextlib import suppress

import torch

from smoothcert.errors import UsageError
from smoothcert.methods import Method, create_method
from smoothcert.training.config import TrainConfig
from smoothcert.training.passes import mean_passes, num_noises
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
    method, options = method_of(config), {}
    for field in dataclasses.fields(method):
        value = getattr(method, field.name)
        if field.name != "sigma" and value is not None:  # TOML has no null
            options[field.name] = float(value) if isinstance(field.default, float) else value
    return dataclasses.replace(config, options=options)


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


def plan_epoch(images: int, batch: int, split: int) -> list[tuple[int, int]]:
    """Return, for every step of an epoch, the position of its first image and its number of images.

    Each mini-batch of consecutive images is cut into `split` steps of equal size. The last mini-batch may be smaller,
    but is cut into `split` steps, too. Remainders of this division are dropped, as in the published code.

    >>> plan_epoch(10, 4, 2)
    [(0, 2), (2, 2), (4, 2), (6, 2), (8, 1), (9, 1)]
    >>> plan_epoch(9, 4, 2)
    [(0, 2), (2, 2), (4, 2), (6, 2)]
    """
    steps = []
    for first in range(0, images, batch):
        size = min(batch, images - first) // split
        steps += [(first + number * size, size) for number in range(split) if size]
    if not steps:
        size = min(batch, images)
        raise UsageError(f"Mini-batches of {size} images are too small for {split} steps each; try `steps='whole'`.")
    return steps


def step_passes(config: TrainConfig) -> float:
    """Return the cost of a training step on all its inputs, in forward passes, averaged over the epochs of a run."""
    images = max(1, config.batch // split_of(config))
    return images * num_noises(config) * mean_passes(config)


def pays_to_compile(config: TrainConfig, steps: int, device: torch.device) -> bool:
    """Return True if compiling the training step saves time over `steps` steps on a device."""
    if device.type != "cuda" or (config.architecture, config.precision) == _ON_KERNELS:
        return False
    return steps * step_passes(config) >= _PASSES_THAT_PAY
