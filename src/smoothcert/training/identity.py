"""Fingerprints of a run's network. A run is resumed, and a teacher is shared, only if the fingerprints match."""

from __future__ import annotations

import dataclasses

from smoothcert.certification.model_hash import fingerprint_model
from smoothcert.distributed.ranks import current_ranks
from smoothcert.models import Factory, ModuleCopies, find_factory
from smoothcert.training.config import TrainConfig
from smoothcert.training.initial_weights import hash_initial_weights
from smoothcert.training.run_data import RunData
from smoothcert.training.setup import new_model

_DIGITS = 16


def identify(config: TrainConfig, images: RunData, factory: Factory | None = None) -> TrainConfig:
    """Return the configuration with fingerprints of a user's network and of given initial weights.

    Bundled architectures are identified by name, and random initial weights by network and seed. A user's modules may
    differ between ranks, so rank 0's fingerprints are used: training starts from rank 0's weights.
    """
    network, weights = "", ""
    own = factory or find_factory(config.architecture)
    if own is not None:
        model = new_model(config, images.of(config)[0], own).network
        network = fingerprint_model(model, values=False)
        weights = fingerprint_model(model) if isinstance(own, ModuleCopies) else "random"
    if config.init:
        weights = hash_initial_weights(config.init)
    network, weights = current_ranks().broadcast_from_rank0([network[:_DIGITS], weights[:_DIGITS]])
    return dataclasses.replace(config, network=network, initial_weights=weights)
