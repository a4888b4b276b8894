"""The random numbers of training, computed from seed, step and position in the mini-batch.

There is therefore no generator state to save. Positions count from the start of the whole mini-batch, so that each rank
draws the same values for its share as a single process would.
"""

from __future__ import annotations

import torch
from torch import Tensor

from smoothcert.distributed.ranks import BatchShare
from smoothcert.philox import Purpose, Word, normal, uniform

_DIRECTION, _UNIFORM = 1 << 14, 1 << 15


class StepDraws:
    """The random numbers of one training step, passed to `Method.step`.

    They depend only on the seed, the step, the position in the mini-batch and the earlier draws in the same step.

    Args:
        seed: Seed of the run.
        step: Index of the step in the run.
        share: The part of the mini-batch that this process computes; default: all of it.

    Example:
        >>> draws = StepDraws(seed=0, step=3)
        >>> draws.noise(torch.zeros(8, 1, 28, 28), 2).shape
        torch.Size([2, 8, 1, 28, 28])
    """

    def __init__(self, seed: int, step: Word, share: BatchShare | None = None) -> None:
        self.seed, self.step, self._noises, self._directions, self._uniforms = seed, step, 0, 0, 0
        self._share = share

    def images(self, x: Tensor) -> int:
        """Return the number of images in the whole mini-batch, of which `x` may be a share."""
        return self._share.images if self._share else len(x)

    def noise(self, x: Tensor, count: int) -> Tensor:
        """Draw standard normal noise.

        Args:
            x: The images of this process.
            count: Number of noise samples per image.

        Returns:
            The noise, [count, *x.shape].
        """
        numbers = torch.arange(self._noises, self._noises + count, device=x.device).unsqueeze(1)
        self._noises += count
        return self._normal(x, Purpose.TRAINING + numbers).view(count, *x.shape)

    def direction(self, x: Tensor) -> Tensor:
        """Draw standard normal values shaped like `x`, for a random direction."""
        self._directions += 1
        return self._normal(x, Purpose.TRAINING + _DIRECTION + self._directions).view_as(x)

    def uniform(self, x: Tensor, count: int) -> Tensor:
        """Draw uniform random values in [0, 1).

        Args:
            x: The images of this process.
            count: Number of values per image.

        Returns:
            The values, [images, count].
        """
        self._uniforms += 1
        last = Purpose.TRAINING + _UNIFORM + self._uniforms
        return uniform(self.seed, (self._positions(x), self.step, last), count, device=x.device)

    def _normal(self, x: Tensor, last: Word) -> Tensor:
        return normal(self.seed, (self._positions(x), self.step, last), x[0].numel(), device=x.device).to(x.dtype)

    def _positions(self, x: Tensor) -> Tensor:
        first = self._share.first if self._share else 0
        return torch.arange(first, first + len(x), device=x.device)
