"""Indices of the images of a results file, in the notation of its sidecar."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any

_MOST_JOINED = 10**7
_LARGEST = 2**53


def images_of(images: Any) -> Sequence[int]:
    """Return the indices that a sidecar's `images` names: start:stop:step, a list or, after a merge, a list of both.

    A progression stays a range, so that a short text cannot name more images than fit into memory.

    Raises:
        ValueError: If `images` has another form; the message names the wrong part.

    >>> list(images_of("0:6:2")), images_of(["0:6:2", [7, 9]])
    ([0, 2, 4], [0, 2, 4, 7, 9])
    """
    if isinstance(images, str):
        return _parse(images)
    if not isinstance(images, list) or any(isinstance(part, int) and not 0 <= part < _LARGEST for part in images):
        raise ValueError(reprlib.repr(images))
    if not is_joined(images):
        return images
    parts = [[part] if isinstance(part, int) else images_of(part) for part in images]
    if sum(map(len, parts)) > _MOST_JOINED:
        raise ValueError(f"more than {_MOST_JOINED:,} in merged files")
    return [index for part in parts for index in part]


def is_joined(images: Any) -> bool:
    """Return True if these are the images of several files that were merged."""
    return isinstance(images, list) and not all(isinstance(part, int) for part in images)


def _parse(text: str) -> range:
    try:
        start, stop, step = map(int, text.split(":"))
        found = range(start, stop, step)
    except ValueError:
        raise ValueError(reprlib.repr(text)) from None
    if found and not (min(found[0], found[-1]) >= 0 and max(found[0], found[-1]) < _LARGEST):
        raise ValueError(reprlib.repr(text))
    return found
