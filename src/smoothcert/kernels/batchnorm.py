"""Triton kernels for BatchNorm with ReLU and for its gradient, used with the convolutions in `kernels.convolution`.

All sums are computed in float32 in a fixed order, so that results are reproducible to the bit.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,import-untyped,import-not-found,misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 2048  # values per program
_CHANNELS = 8  # channels per program when statistics are combined: the size of a memory access
_PARTS = 256  # partial statistics read at a time


@triton.jit
def _parts(parts, first, programs, channel, channels: tl.constexpr, places: tl.constexpr, chunk: tl.constexpr):
    """Load one statistic of `chunk` parts, beginning with part `first`; also return the program of each part.

    `parts` is [programs, 2 statistics, places * channels]. A place is a position in a block of pixels (see
    `convolution`); a part is one place of one program.
    """
    part = first + tl.arange(0, chunk)
    where = part // places * (2 * places * channels) + part % places * channels
    known = (part < programs * places)[:, None]
    return tl.load(parts + where[:, None] + channel[None, :], mask=known, other=0.0), part // places


@triton.jit
def _moments_kernel(
    out, parts, programs, rows, epsilon,
    channels: tl.constexpr, places: tl.constexpr, block: tl.constexpr, few: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    """Combine the means and centered sums of squares of all parts, as in Chan, Golub and LeVeque (1983)."""
    channel = tl.program_id(0) * few + tl.arange(0, few)
    total = tl.zeros([few], tl.float32)
    squares = tl.zeros([few], tl.float32)
    for first in tl.range(0, programs * places, chunk):
        means, program = _parts(parts, first, programs, channel, channels, places, chunk)
        total += tl.sum(means * tl.minimum(rows - program * block, block)[:, None], axis=0)
    mean = total / (rows * places)
    for first in tl.range(0, programs * places, chunk):
        means, program = _parts(parts, first, programs, channel, channels, places, chunk)
        within, _ = _parts(parts + places * channels, first, programs, channel, channels, places, chunk)
        sizes = tl.maximum(tl.minimum(rows - program * block, block), 0)[:, None]
        squares += tl.sum(within + sizes * (means - mean[None, :]) * (means - mean[None, :]), axis=0)
    variance = squares / (rows * places)
    tl.store(out + channel, mean)
    tl.store(out + channels + channel, variance)
    tl.store(out + 2 * channels + channel, 1 / tl.sqrt_rn(variance + epsilon))


@triton.jit
def _sums_kernel(
    out, parts, programs, channels: tl.constexpr, places: tl.constexpr, few: tl.constexpr, chunk: tl.constexpr
):  # fmt: skip
    channel = tl.program_id(0) * few + tl.arange(0, few)
    source = parts + tl.program_id(1) * (places * channels)
    total = tl.zeros([few], tl.float32)
    for first in tl.range(0, programs * places, chunk):
        total += tl.sum(_parts(source, first, programs, channel, channels, places, chunk)[0], axis=0)
    tl.store(out + tl.program_id(1) * channels + channel, total)


@triton.jit
def _normalize_kernel(
    out, images, added, moments, scale, shift, size,
    channels: tl.constexpr, rectified: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    value = tl.program_id(0) * block + tl.arange(0, block)
    channel, known = value % channels, value < size
    factor = tl.load(moments + 2 * channels + channel) * tl.load(scale + channel)
    z = tl.load(images + value, mask=known, other=0.0).to(tl.float32)
    total = (z - tl.load(moments + channel)) * factor + tl.load(shift + channel)
    if added is not None:
        total += tl.load(added + value, mask=known, other=0.0)
    if rectified:
        total = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL)  # NaN shows that a run diverges
    tl.store(out + value, total.to(out.dtype.element_ty), mask=known)


@triton.jit
def _arrive_kernel(
    out, parts, gradient, kept, normal, moments, pixels, channels: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    """Zero the gradient where `kept`, if given, is not positive; compute partial sums for the gradient of BatchNorm."""
    pixel, channel = tl.program_id(0) * block + tl.arange(0, block), tl.arange(0, channels)
    value, known = pixel[:, None] * channels + channel[None, :], (pixel < pixels)[:, None]
    arrived = tl.load(gradient + value, mask=known, other=0.0)
    if kept is not None:
        arrived = tl.where(tl.load(kept + value, mask=known, other=0.0) > 0, arrived, 0.0)
        tl.store(out + value, arrived, mask=known)
    z = tl.load(normal + value, mask=known, other=0.0).to(tl.float32) - tl.load(moments + channel)[None, :]
    target, scale = parts + tl.program_id(0) * (2 * channels) + channel, tl.load(moments + 2 * channels + channel)
    tl.store(target, tl.sum(arrived.to(tl.float32), axis=0))
    tl.store(target + channels, tl.sum(arrived.to(tl.float32) * z, axis=0) * scale)


@triton.jit
def _denormalize_kernel(
    out, gradient, images, moments, scale, sums, size, channels: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    value = tl.program_id(0) * block + tl.arange(0, block)
    channel, known = value % channels, value < size
    inverse, share = tl.load(moments + 2 * channels + channel), channels / size
    z = tl.load(images + value, mask=known, other=0.0).to(tl.float32)
    normal = (z - tl.load(moments + channel)) * inverse
    common = (tl.load(sums + channel) + normal * tl.load(sums + channels + channel)) * share
    found = (tl.load(gradient + value, mask=known, other=0.0) - common) * (inverse * tl.load(scale + channel))
    tl.store(out + value, found.to(out.dtype.element_ty), mask=known)


def moments_of(parts: Tensor, images: Tensor, block: int, epsilon: float, out: Tensor) -> None:
    """Write mean, variance and 1 / deviation per channel, from the `parts` that `convolve` writes per `block` rows."""
    programs, channels = len(parts), images.shape[3]
    places = parts.shape[2] // channels
    with torch.cuda.device_of(parts):
        _moments_kernel[(channels // _CHANNELS,)](
            out, parts, programs, images.numel() // (channels * places), epsilon, channels, places, block, _CHANNELS,
            _PARTS, num_warps=8,
        )  # fmt: skip


def sums_of(parts: Tensor, out: Tensor) -> None:
    """Sum `parts` [programs, 2, positions * channels] over programs and positions; write to `out` [2, channels]."""
    channels = out.shape[1]
    with torch.cuda.device_of(parts):
        _sums_kernel[(channels // _CHANNELS, 2)](
            out, parts, len(parts), channels, parts.shape[2] // channels, _CHANNELS, _PARTS, num_warps=8
        )


def normalize(
    images: Tensor, moments: Tensor, scale: Tensor, shift: Tensor, added: Tensor | None, out: Tensor, rectified: bool
) -> None:
    """Write batch_norm(images) + added, with ReLU if `rectified`, for images [count, height, width, channels]."""
    with torch.cuda.device_of(images):
        _normalize_kernel[(triton.cdiv(images.numel(), _BLOCK),)](
            out, images, added, moments, scale, shift, images.numel(), images.shape[3], rectified, _BLOCK, num_warps=8
        )


def arrive(gradient: Tensor, kept: Tensor | None, normal: Tensor, moments: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of a ReLU's input, and the partial sums for the backward pass of the BatchNorm before it.

    `kept` is the output of the ReLU, or None if there is no ReLU. `normal` is the input of the BatchNorm.
    """
    channels = gradient.shape[3]
    pixels, block = gradient.numel() // channels, _BLOCK // channels
    programs = triton.cdiv(pixels, block)
    out, parts = gradient if kept is None else torch.empty_like(gradient), moments.new_empty((programs, 2, channels))
    with torch.cuda.device_of(gradient):
        _arrive_kernel[(programs,)](out, parts, gradient, kept, normal, moments, pixels, channels, block, num_warps=8)
    return out, parts


def denormalize(gradient: Tensor, images: Tensor, moments: Tensor, scale: Tensor, sums: Tensor) -> Tensor:
    """Return the gradient of `images`, given the gradient of batch_norm(images) and the sums that `sums_of` writes."""
    out = torch.empty_like(gradient)
    with torch.cuda.device_of(images):
        _denormalize_kernel[(triton.cdiv(images.numel(), _BLOCK),)](
            out, gradient, images, moments, scale, sums, images.numel(), images.shape[3], _BLOCK, num_warps=8
        )
    return out
