"""Random crops of training images."""

from __future__ import annotations

import math
from collections.abc import Sequence

_TRIES = 10
DRAWS = 4 * _TRIES + 1  # area, ratio and position of every try; the last draw decides on mirroring
_AREA, _RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


def random_box(width: int, height: int, draws: Sequence[float]) -> tuple[int, int, int, int]:
    """Return left, top, width and height of a random crop, computed from uniform random numbers.

    As usual for ImageNet, the area is 8 to 100 % of the image and the aspect ratio is log-uniform between 3:4 and 4:3.
    The first of ten random boxes that fits into the image is used. If none fits, the crop is the largest central one
    with an allowed aspect ratio.

    >>> random_box(500, 375, [0.5] * DRAWS)
    (91, 29, 318, 318)
    """
    low, high = (math.log(ratio) for ratio in _RATIO)
    for number in range(_TRIES):
        area, ratio, across, down = draws[4 * number : 4 * number + 4]
        pixels = width * height * (_AREA[0] + (_AREA[1] - _AREA[0]) * area)
        shape = math.exp(low + (high - low) * ratio)
        wide, tall = round(math.sqrt(pixels * shape)), round(math.sqrt(pixels / shape))
        if 0 < wide <= width and 0 < tall <= height:
            return int(across * (width - wide + 1)), int(down * (height - tall + 1)), wide, tall
    wide, tall = min(width, round(height * _RATIO[1])), min(height, round(width / _RATIO[0]))
    return (width - wide) // 2, (height - tall) // 2, wide, tall
