"""Compute the cost of training methods without importing torch. The unit is a forward pass of one input.

A backward pass costs as much as one forward pass if it computes gradients only for the inputs, else as much as two.
"""

from __future__ import annotations

from smoothcert.training.config import TrainConfig

_TWO_LOSSES = ("stability", "smoothmix", "catrs")  # methods that pass each input through the network twice


def passes_per_input(method: str, attack_steps: int = 0) -> int:
    """Return the cost of a method's training step per noisy input, in forward passes.

    >>> passes_per_input("gaussian"), passes_per_input("catrs", attack_steps=4)
    (3, 14)
    """
    return (6 if method in _TWO_LOSSES else 3) + 2 * attack_steps


def votes_per_image(config: TrainConfig) -> int:
    """Return the number of votes per training image that a run needs to choose images, if none are discarded."""
    choices = sum(config.chooses_images_at(epoch) for epoch in range(config.epochs))
    discards = choices > 0 and config.discard_below > 0 and not config.discard_file
    reweights = choices if config.reweight_every else 0
    return discards * config.discard_samples + reweights * config.reweight_samples


def relative_cost(config: TrainConfig) -> float:
    """Return the mean cost of an epoch relative to Gaussian training with one noise sample per image.

    The estimate considers only options that the configuration sets explicitly, not the method's defaults.

    >>> relative_cost(TrainConfig(method="consistency", options={"num_noises": 2}))
    2.0
    """
    options, without_attack = config.options, passes_per_input(config.method)
    attack = passes_per_input(config.method, int(options.get("attack_steps", 0))) - without_attack
    attacked = max(0, config.epochs - int(options.get("attack_epoch", 0))) / config.epochs
    steps = int(options.get("num_noises", 1)) * (without_attack + attacked * attack)
    return (steps + votes_per_image(config) / config.epochs) / passes_per_input("gaussian")
