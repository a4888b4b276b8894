"""Parse the list of image indices in a sidecar."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any

_MOST_JOINED = 10**7
_LARGEST = 2**53


def images_of(images: Any) -> Sequence[int]:
    """Return the image indices given by `settings.images` in a sidecar.

    `images` is a string "start:stop:step" or a list of indices. In a merged file, it is a list whose elements are
    such strings, lists of indices or individual indices. A string is returned as a range, because it may stand for more
    indices than fit into memory.

    Raises:
        ValueError: If `images` has another form, or contains invalid or too many indices.

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
        raise ValueError(f"more than {_MOST_JOINED:,} indices in a merged file")
    return [index for part in parts for index in part]


def is_joined(images: Any) -> bool:
    """Return True if `images` is a list with elements other than indices, as in a merged file."""
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
