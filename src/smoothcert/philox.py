"""Stateless random numbers: the counter-based generator Philox4x32-10.

A draw is addressed by a seed and three 32-bit integers, for instance (sample number, image index, purpose). The same
address gives the same numbers on every device, in any batch, shard or process. The generator is described in Salmon
et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

import math
from enum import IntEnum

import torch
from torch import Tensor

from smoothcert.kernels import triton_kernels

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF
_UNIT = 2.0**-32

Word = Tensor | int
Words = tuple[Tensor, Tensor, Tensor, Tensor]


class Purpose(IntEnum):
    """Offsets added to the last address word, to keep the random numbers of different uses disjoint."""

    CERTIFY = 0
    PREDICT = 1 << 16
    SOFT_LABELS = 2 << 16
    TRAINING = 3 << 16
    ORDER = 4 << 16
    AUGMENTATION = 5 << 16
    EVALUATION = 6 << 16
    ATTACK = 7 << 16
    SAMPLING = 8 << 16
    VALIDATION = 9 << 16


def philox4x32(counter: tuple[Word, Word, Word, Word], key: tuple[int, int]) -> Words:
    """Encrypt four counter words (int64 tensors below 2**32, any broadcastable shapes) with ten rounds.

    Words are kept in 64 bits and masked to 32 bits only before a multiplication and at the end. Words are
    broadcast only as rounds combine them, so the first rounds are cheap if each word varies along one axis.
    """
    c0, c1, c2, c3 = (torch.as_tensor(word) for word in counter)
    k0, k1 = key
    for _ in range(10):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0 = ((product1 >> 32) ^ (c1 ^ k0)) & _WORD
        c2 = ((product0 >> 32) ^ (c3 ^ k1)) & _WORD
        c1, c3 = product1, product0
        k0, k1 = (k0 + _KEY_STEPS[0]) & _WORD, (k1 + _KEY_STEPS[1]) & _WORD
    return c0, c1 & _WORD, c2, c3 & _WORD


def normal(seed: int, address: tuple[Word, Word, Word], size: int, *, device: torch.device | None = None) -> Tensor:
    """Draw `size` standard normal values (float32) for every element of the broadcast address words.

    >>> torch.equal(normal(1, (torch.arange(5), 7, 0), 3)[4], normal(1, (4, 7, 0), 3))
    True
    """
    if device is not None and device.type == "cuda" and (kernels := triton_kernels()):
        return kernels.draw(seed, *_placed(address, device), size, True)  # type: ignore[no-any-return]
    words = _words(seed, address, size, device)
    pairs = [part for pair in (words[:2], words[2:]) for part in _box_muller(*pair)]
    return _interleave(pairs, size)


def uniform(seed: int, address: tuple[Word, Word, Word], size: int, *, device: torch.device | None = None) -> Tensor:
    """Draw `size` float32 values in [0, 1), multiples of 2**-24, for every element of the broadcast address words."""
    if device is not None and device.type == "cuda" and (kernels := triton_kernels()):
        return kernels.draw(seed, *_placed(address, device), size, False)  # type: ignore[no-any-return]
    return _interleave([(word >> 8).float() * 2.0**-24 for word in _words(seed, address, size, device)], size)


def long_words(seed: int, address: tuple[Word, Word, Word], size: int, *, device: torch.device | None = None) -> Tensor:
    """Draw `size` int64 values in [0, 2**60) for every element of the broadcast address words."""
    a, b, c, d = _words(seed, address, 2 * size, device)
    return _interleave([a << 28 | b >> 4, c << 28 | d >> 4], size)


def permutation(seed: int, address: tuple[int, int, int], size: int) -> Tensor:
    """Return a random permutation of 0..size-1 (on the CPU) by sorting 63-bit random keys."""
    high, low, *_ = _words(seed, address, 4 * size, None)
    return torch.argsort((high >> 1 << 32) | low, stable=True)


def _placed(address: tuple[Word, Word, Word], device: torch.device | None) -> list[Tensor]:
    """Move address words to a device; ints are created there, since CUDA graphs cannot capture copies from the host."""
    return [w.to(device) if isinstance(w, Tensor) else torch.full((), w, device=device) for w in address]


def _words(seed: int, address: tuple[Word, Word, Word], size: int, device: torch.device | None) -> Words:
    first, second, third = (word.unsqueeze(-1) for word in _placed(address, device))
    group = torch.arange(-(-size // 4), device=first.device)
    return philox4x32((group, first, second, third), (seed & _WORD, seed >> 32 & _WORD))


def _box_muller(radius_word: Tensor, angle_word: Tensor) -> tuple[Tensor, Tensor]:
    """Convert two 32-bit words to two normal values, with absolute values of at most 6.77."""
    radius = (radius_word.float() * _UNIT + _UNIT / 2).log().mul(-2).sqrt()  # _UNIT / 2 keeps the logarithm finite
    angle = angle_word.float() * (2 * math.pi * _UNIT)
    return radius * angle.cos(), radius * angle.sin()


def _interleave(parts: list[Tensor], size: int) -> Tensor:
    return torch.stack(parts, dim=-1).flatten(-2)[..., :size]
