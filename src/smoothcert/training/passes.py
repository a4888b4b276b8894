"""Compute the cost of training runs without importing torch. The unit is a forward pass of one input.

A backward pass costs as much as one forward pass if it computes gradients only for the inputs, else as much as two.
"""

from __future__ import annotations

from typing import Any

from smoothcert.training.config import TrainConfig
from smoothcert.training.known_methods import known_methods


def passes_per_input(method: str) -> int:
    """Return the cost of a method's training step per noisy input, in forward passes, without attacks.

    >>> passes_per_input("gaussian"), passes_per_input("catrs")
    (3, 6)
    """
    known = known_methods().get(method)
    return 3 * (known.training_passes if known else 1)


def all_options(config: TrainConfig) -> dict[str, Any]:
    """Return the options of a run's method, with defaults for options that the configuration does not state."""
    known = known_methods().get(config.method)
    return {**(known.defaults() if known else {}), **config.options}


def mean_passes(config: TrainConfig) -> float:
    """Return the cost of a training step per noisy input, in forward passes, averaged over the epochs of a run.

    >>> mean_passes(TrainConfig(method="first-failure", epochs=10, options={"attack_steps": 4, "attack_epoch": 5}))
    7.0
    """
    options = all_options(config)
    attacked = max(0, config.epochs - int(options.get("attack_epoch", 0))) / config.epochs
    return passes_per_input(config.method) + attacked * 2 * int(options.get("attack_steps", 0))


def votes_per_image(config: TrainConfig) -> int:
    """Return the number of votes per training image that a run needs to choose images, if none are discarded."""
    choices = sum(config.chooses_images_at(epoch) for epoch in range(config.epochs))
    discards = choices > 0 and config.discard_below > 0 and not config.discard_file
    reweights = choices if config.reweight_every else 0
    return discards * config.discard_samples + reweights * config.reweight_samples


def relative_cost(config: TrainConfig) -> float:
    """Return the mean cost of an epoch relative to Gaussian training with one noise sample per image.

    >>> relative_cost(TrainConfig(method="consistency"))
    2.0
    """
    steps = int(all_options(config).get("num_noises", 1)) * mean_passes(config)
    return (steps + votes_per_image(config) / config.epochs) / passes_per_input("gaussian")
