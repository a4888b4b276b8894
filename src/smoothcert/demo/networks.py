"""Reads the quantized networks of the demo page. No torch."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("assets") / "networks"
SIGMAS = (0.25, 0.5, 1.0)
METHODS = ("gaussian", "catrs")
ORDINARY = "ordinary"
"""The network that was trained without noise to speak of, for comparison."""


def network_names() -> list[str]:
    """Return the names of all networks of the page, such as `catrs-0.50`."""
    return [f"{method}-{sigma:.2f}" for method in METHODS for sigma in SIGMAS] + [ORDINARY]


def packed_network(name: str) -> bytes:
    """Return a network's file: safetensors, compressed with gzip."""
    return (FOLDER / f"{name}.safetensors.gz").read_bytes()


def network_facts(name: str) -> dict[str, Any]:
    """Return where a network comes from: name and SHA-256 of the float network, its epochs and its noise level."""
    raw = gzip.decompress(packed_network(name))
    facts: dict[str, Any] = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])["__metadata__"]
    return facts
