"""Names of the built-in and registered networks, available without importing torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

ARCHITECTURES = ("lenet", "cifar_resnet20", "cifar_resnet110", "resnet50")

REGISTERED: dict[str, Callable[..., Any]] = {}
"""Factories of users' networks by name; `smoothcert.register_model` adds them."""


def is_bundled(name: str) -> bool:
    """Return True for the name of a built-in network, including a CIFAR ResNet of any depth.

    >>> is_bundled("cifar_resnet56"), is_bundled("mine")
    (True, False)
    """
    return name in ARCHITECTURES or re.fullmatch(r"cifar_resnet(\d+)", name) is not None
