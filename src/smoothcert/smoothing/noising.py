"""Add noise to inputs: one definition of each noise for all devices, and a fused kernel where available."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from smoothcert.errors import UsageError
from smoothcert.kernels import triton_kernels
from smoothcert.philox import long_words, normal, uniform
from smoothcert.statistics.integer_noise import LEVELS, thresholds
from smoothcert.statistics.noise import GaussianNoise, GridNoise, Noise, UniformNoise


def add_noise(
    noise: Noise,
    inputs: Tensor,
    image: Tensor,
    indices: Tensor,
    samples: Tensor,
    *,
    seed: int,
    purpose: int,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return micro-batches of noisy inputs, [micro-batches, rows, ...].

    Micro-batch m contains copies of inputs[image[m]], with the noise samples numbered samples[m]. `indices` has the
    index of each input; noise sample s of the input with index i is a function of (seed, purpose, i, s) only. Noise is
    added in float32, or in integers on the grid of 8-bit images, and the sum is cast to `dtype` once.
    """
    shape = (*samples.shape, *inputs.shape[1:])
    kernels = triton_kernels() if inputs.is_cuda and not isinstance(noise, UniformNoise) else None
    if kernels:
        rows, kernel = image.unsqueeze(1).expand_as(samples).reshape(-1), kernels.noisy_copies
        options: dict[str, Any] = {"sigma": noise.sigma, "seed": seed, "purpose": purpose, "dtype": dtype}
        if isinstance(noise, GridNoise):
            table, offset, limits = _table(noise.sigma, inputs.device)
            options |= {"table": table, "offset": offset, "limits": limits}
            kernel = kernels.grid_copies
        noisy: Tensor = kernel(inputs, rows, indices, samples.reshape(-1), **options)
        return noisy.view(shape)
    address = (samples, indices[image].unsqueeze(1), purpose)
    size, device = inputs[0].numel(), inputs.device
    if isinstance(noise, GridNoise):
        return _on_grid(noise.sigma, inputs[image], long_words(seed, address, size, device=device), shape).to(dtype)
    if isinstance(noise, GaussianNoise):
        drawn = noise.sigma * normal(seed, address, size, device=device)
    elif isinstance(noise, UniformNoise):
        # Multiples of 2**-24, shifted by half a step to be symmetric around 0; exact until scaled.
        drawn = noise.half_width * (2 * uniform(seed, address, size, device=device) - (1 - 2.0**-24))
    else:
        raise UsageError(f"Expected `noise` to be Gaussian, grid or uniform noise, but got {noise}.")
    return (inputs[image].unsqueeze(1) + drawn.view(shape)).to(dtype)


def check_grid(noise: GridNoise, inputs: Tensor) -> None:
    """Raise if sound certification does not cover the inputs.

    Inputs must be 8-bit images, since the table of thresholds ends where all pixels from 0 to 255 are clipped anyway.
    They must not be larger than the inputs that the noise was created for: its slack would be too small.
    """
    if not torch.equal(_pixels(inputs).clamp(0, LEVELS).float() / LEVELS, inputs.float()):
        raise UsageError("Expected inputs to be 8-bit images (multiples of 1/255 in [0, 1]) for sound certification.")
    size = inputs[0].numel()
    if noise.slack < thresholds(noise.sigma).slack(size):
        expected = f"`grid_noise({noise.sigma}, {size})`"
        raise UsageError(f"Expected `noise` to be {expected}, but got grid noise for smaller inputs.")


def _on_grid(sigma: float, inputs: Tensor, drawn: Tensor, shape: tuple[int, ...]) -> Tensor:
    table, offset, (low, high) = _table(sigma, inputs.device)
    steps = torch.bucketize(drawn.contiguous(), table, right=True) - offset
    return (_pixels(inputs).unsqueeze(1) + steps.view(shape)).clamp(low, high).float() / LEVELS


def _pixels(inputs: Tensor) -> Tensor:
    return (inputs * LEVELS + 0.5).floor().long()


@cache
def _table(sigma: float, device: torch.device) -> tuple[Tensor, int, tuple[int, int]]:
    """Return thresholds on a device, the offset to subtract from a bucket's index, and the limits of noisy pixels."""
    table = thresholds(sigma)
    return torch.tensor(table.counts, device=device), table.offset, (table.low, table.high)
