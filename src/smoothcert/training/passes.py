"""The cost of training methods, in forward passes of one input; no torch.

A backward pass to the input counts as one forward pass, a backward pass to the weights as two.
"""

from __future__ import annotations

from smoothcert.training.config import TrainConfig

_TWO_LOSSES = ("stability", "smoothmix", "catrs")  # methods that pass each input through the network twice


def passes_per_input(method: str, attack_steps: int = 0) -> int:
    """Return the forward passes that a training step of a method takes per noisy input.

    >>> passes_per_input("gaussian"), passes_per_input("catrs", attack_steps=4)
    (3, 14)
    """
    return (6 if method in _TWO_LOSSES else 3) + 2 * attack_steps


def relative_cost(config: TrainConfig) -> float:
    """Return the cost of an epoch relative to Gaussian training, from the options that a recipe states.

    >>> relative_cost(TrainConfig(method="consistency", options={"num_noises": 2}))
    2.0
    """
    options = config.options
    per_input = passes_per_input(config.method, int(options.get("attack_steps", 0)))
    return int(options.get("num_noises", 1)) * per_input / passes_per_input("gaussian")
