"""The random numbers of training, as functions of seed, step and position in the mini-batch: no state to save.

The position is that in the whole mini-batch, so that a rank which has a part of it draws what one process would.
"""

from __future__ import annotations

import torch
from torch import Tensor

from smoothcert.distributed.ranks import BatchShare
from smoothcert.philox import Purpose, Word, normal, uniform

_DIRECTION, _UNIFORM = 1 << 14, 1 << 15


class StepDraws:
    """The draws of one step; what is asked for in turn gets addresses of its own."""

    def __init__(self, seed: int, step: Word, part: BatchShare | None = None) -> None:
        self.seed, self.step, self._noises, self._directions, self._uniforms = seed, step, 0, 0, 0
        self._part = part

    def images(self, x: Tensor) -> int:
        """Return the number of images in the whole mini-batch, of which x may be a part."""
        return self._part.images if self._part else len(x)

    def noise(self, x: Tensor, count: int) -> Tensor:
        """Return standard normals [count, *x.shape]."""
        numbers = torch.arange(self._noises, self._noises + count, device=x.device).unsqueeze(1)
        self._noises += count
        return self._normal(x, Purpose.TRAINING + numbers).view(count, *x.shape)

    def direction(self, x: Tensor) -> Tensor:
        """Return standard normals shaped like x."""
        self._directions += 1
        return self._normal(x, Purpose.TRAINING + _DIRECTION + self._directions).view_as(x)

    def uniform(self, x: Tensor, count: int) -> Tensor:
        """Return numbers in [0, 1), [images, count]."""
        self._uniforms += 1
        last = Purpose.TRAINING + _UNIFORM + self._uniforms
        return uniform(self.seed, (self._positions(x), self.step, last), count, device=x.device)

    def _normal(self, x: Tensor, last: Word) -> Tensor:
        return normal(self.seed, (self._positions(x), self.step, last), x[0].numel(), device=x.device).to(x.dtype)

    def _positions(self, x: Tensor) -> Tensor:
        first = self._part.first if self._part else 0
        return torch.arange(first, first + len(x), device=x.device)
