"""Compute the cost of training runs without importing torch. The unit is a forward pass of one input.

A backward pass costs as much as one forward pass if it computes gradients only for the inputs, else as much as two.
"""

from __future__ import annotations

from typing import Any

from smoothcert.training.config import TrainConfig
from smoothcert.training.known_methods import known_methods

TRAINING_PASS = 3
"""Cost of a forward pass and a backward pass that computes gradients for the weights."""


def all_options(config: TrainConfig) -> dict[str, Any]:
    """Return the options of a run's method, with defaults for options that the configuration does not state."""
    known = known_methods().get(config.method)
    return {**(known.defaults() if known else {}), **config.options}


def mean_passes(config: TrainConfig) -> float:
    """Return the cost of a training step per noisy input, in forward passes, averaged over the epochs of a run.

    The cost of a method that is not registered is that of Gaussian training.

    >>> mean_passes(TrainConfig(method="first-failure", epochs=10, options={"attack_steps": 4, "attack_epoch": 5}))
    7.0
    >>> mean_passes(TrainConfig(method="catrs")), mean_passes(TrainConfig(method="catrs", options={"high": "none"}))
    (14.0, 3.0)
    """
    known, options = known_methods().get(config.method), all_options(config)
    if known is None or known.is_plain(options):
        return float(TRAINING_PASS)
    attacked = max(0, config.epochs - int(options.get("attack_epoch") or 0)) / config.epochs
    return known.training_passes * TRAINING_PASS + attacked * 2 * int(options.get("attack_steps") or 0)


def num_noises(config: TrainConfig) -> int:
    """Return the number of noise samples per training image."""
    return int(all_options(config).get("num_noises") or 1)


def votes_per_image(config: TrainConfig) -> int:
    """Return the number of votes per training image that a run needs to choose images, if none are discarded."""
    choices = sum(config.chooses_images_at(epoch) for epoch in range(config.epochs))
    discards = choices > 0 and config.discard_below > 0 and not config.discard_file
    reweights = choices if config.reweight_every else 0
    return discards * config.discard_samples + reweights * config.reweight_samples


def relative_cost(config: TrainConfig) -> float:
    """Return the mean cost of an epoch relative to Gaussian training with one noise sample per image.

    Teachers and soft labels are not counted.

    >>> relative_cost(TrainConfig(method="consistency"))
    2.0
    """
    steps = num_noises(config) * mean_passes(config)
    return (steps + votes_per_image(config) / config.epochs) / TRAINING_PASS
