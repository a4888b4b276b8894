"""The model card of a trained network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from smoothcert.errors import counted
from smoothcert.training.compute import with_defaults
from smoothcert.training.config import TrainConfig, to_toml


def model_card(config: TrainConfig, metrics: Sequence[Mapping[str, Any]], environment: Mapping[str, Any]) -> str:
    """Return the text of a run folder's README."""
    last = metrics[-1] if metrics else {}
    seconds = sum(row.get("seconds", 0.0) for row in metrics)
    accuracy = last.get("test_accuracy", float("nan"))
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    return f"""# {config.name}

A {config.architecture} for {config.dataset}, trained with {config.method} for randomized smoothing with Gaussian noise
of standard deviation {config.sigma:g} (on images in [0, 1]).

- {counted(config.epochs, "epoch")} in {seconds:,.0f} s on {environment["device"]} ({versions})
- accuracy of the base classifier with one noise sample per image, last epoch: {accuracy:.2f} % of the test images

This is not its certified accuracy; measure that with

    smoothcert certify PATH_OF_THIS_FOLDER

Configuration:

```toml
{to_toml(with_defaults(config))}```
"""
