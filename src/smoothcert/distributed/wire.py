"""Encode values sent between ranks as JSON.

Pickles would be unsafe, because anyone who can reach the store can write to it.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np

from smoothcert.errors import SmoothcertError, kind_of


def encode(value: Any) -> str:
    """Encode a value as JSON. Tuples and arrays become lists, and dataclasses become lists of their fields.

    >>> encode((1, np.array([2, 3]), None))
    '[1, [2, 3], null]'
    """
    return json.dumps(value, default=_plain)


def decode(text: str | bytes) -> Any:
    """Decode a JSON text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SmoothcertError(f"The ranks' store contains a value that is not JSON ({error}); stopping.") from error


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"Expected a value that can be sent as JSON, but got {kind_of(value)}.")
