"""The cost of training steps, in forward passes of one input."""

from __future__ import annotations

import torch

from smoothcert.methods import Method, create_method
from smoothcert.training.config import TrainConfig
from smoothcert.training.passes import passes_per_input

_PASSES_THAT_PAY = 150e6  # for the time of compilation; measured, see benchmarks/README.md


def method_of(config: TrainConfig) -> Method:
    """Return the method of a run. Raise if its options make no sense."""
    return create_method(config.method, config.sigma, config.options)


def split_of(config: TrainConfig) -> int:
    """Return the number of steps per mini-batch."""
    return method_of(config).split if config.steps == "split" else 1


def passes(method: Method) -> int:
    """Return the cost of a training step per noisy input, in forward passes."""
    return passes_per_input(method.name, int(getattr(method, "attack_steps", 0)))


def step_passes(config: TrainConfig) -> int:
    """Return the cost of a whole step."""
    method, images = method_of(config), max(1, config.batch // split_of(config))
    return images * getattr(method, "num_noises", 1) * passes(method)


def pays_to_compile(config: TrainConfig, steps: int, device: torch.device) -> bool:
    """Return True if `steps` steps on a device are enough work to make up for the time of compilation."""
    return device.type == "cuda" and steps * step_passes(config) >= _PASSES_THAT_PAY
