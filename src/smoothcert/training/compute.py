"""How much work training is. The unit is one forward pass of one input.

A pass back to the input counts as one more, a pass back to the weights as two.
"""

from __future__ import annotations

import torch

from smoothcert.methods import Method, create_method
from smoothcert.training.config import TrainConfig

_PASSES_THAT_PAY = 150e6  # for the time compilation takes; measured, see benchmarks/README.md


def method_of(config: TrainConfig) -> Method:
    """Return the method of a run."""
    return create_method(config.method, config.sigma, config.options)


def split_of(config: TrainConfig) -> int:
    """Return into how many steps a run cuts a mini-batch."""
    return method_of(config).split if config.steps == "split" else 1


def passes(method: Method) -> int:
    """Return the forward passes that a step of training does, or would do in the same time, for each input."""
    attack = 2 * getattr(method, "attack_steps", 0)
    twice = method.name in ("stability", "smoothmix", "catrs")
    return int(attack + (6 if twice else 3))


def step_inputs(config: TrainConfig, gpus: int = 1) -> int:
    """Return the inputs of a step: its images, shared out over GPUs, under each of their noises."""
    images = max(1, config.batch // split_of(config))
    return int(-(-images // gpus) * getattr(method_of(config), "num_noises", 1))


def step_passes(config: TrainConfig) -> int:
    """Return the passes of a whole step."""
    return step_inputs(config) * passes(method_of(config))


def pays_to_compile(config: TrainConfig, steps: int, device: torch.device) -> bool:
    """Whether so many steps of a run are enough work on a device to repay the compiler's time."""
    return device.type == "cuda" and steps * step_passes(config) >= _PASSES_THAT_PAY
