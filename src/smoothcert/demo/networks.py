"""Read the quantized networks of the demo page, without importing torch."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("assets") / "networks"
SIGMAS = (0.25, 0.5, 1.0)
DEMO_METHODS = ("gaussian", "catrs")
ORDINARY = "ordinary"
"""Name of a network for comparison that is trained with negligible noise (sigma 0.01)."""


def network_names() -> list[str]:
    """Return the names of all networks on the page, such as `catrs-0.50`."""
    return [f"{method}-{sigma:.2f}" for method in DEMO_METHODS for sigma in SIGMAS] + [ORDINARY]


def packed_network(name: str) -> bytes:
    """Return the content of a network's file, which is in safetensors format and compressed with gzip."""
    return (FOLDER / f"{name}.safetensors.gz").read_bytes()


def network_facts(name: str) -> dict[str, Any]:
    """Return a network's metadata: name and SHA-256 of the unquantized network, training epochs and noise level."""
    raw = gzip.decompress(packed_network(name))
    facts: dict[str, Any] = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])["__metadata__"]
    return facts
