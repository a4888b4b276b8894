"""Triton kernel for convolution, ReLU and max pooling of a small network, for voting in bfloat16.

The matrix product is the same as in `models.pooled_convolution.blocked_conv_relu_pool`, but neither the patches nor the
product are stored. A program reads the patches of a block of pooled pixels, `_DEPTH` values at a time, multiplies them
with all filters at all four positions in the pooling window, and writes the maximum over the positions.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,import-untyped,import-not-found,misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from smoothcert.kernels.operators import operator

_DEPTH = 64  # values of a patch per iteration


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _conv_relu_pool_kernel(
    out, images, weight, bias, rows,
    height: tl.constexpr, width: tl.constexpr, channels: tl.constexpr, size: tl.constexpr, filters: tl.constexpr,
    padded_filters: tl.constexpr, run: tl.constexpr, turns: tl.constexpr, block: tl.constexpr, depth: tl.constexpr,
    flat: tl.constexpr,
):  # fmt: skip
    down: tl.constexpr = (height - size + 2) // 2
    across: tl.constexpr = (width - size + 2) // 2
    row = tl.program_id(0) * block + tl.arange(0, block)
    image, pixel = (row // (down * across)).to(tl.int64), row % (down * across)
    corner = image * (height * width * channels) + (pixel // across * (2 * width) + pixel % across * 2) * channels
    column = tl.arange(0, 4 * padded_filters)
    total = tl.zeros([block, 4 * padded_filters], tl.float32)
    for turn in tl.range(turns):
        place = turn * depth + tl.arange(0, depth)
        line, along = place // run, place % run
        inside = (line < size) & (along < size * channels)
        patches = tl.load(
            images + corner[:, None] + (line * (width * channels) + along)[None, :],
            mask=(row < rows)[:, None] & inside[None, :],
            other=0.0,
        )
        total = tl.dot(patches, tl.load(weight + place[:, None] * (4 * padded_filters) + column[None, :]), total)
    best = tl.reduce(tl.reshape(total, [block, 4, padded_filters]), 1, _larger)
    which = tl.arange(0, padded_filters)
    scores = _larger(best + tl.load(bias + which, mask=which < filters, other=0.0)[None, :], 0.0)
    if flat:
        target = (image * (down * across * filters) + pixel)[:, None] + (which * (down * across))[None, :]
    else:
        target = row.to(tl.int64)[:, None] * filters + which[None, :]
    tl.store(out + target, scores.to(out.dtype.element_ty), mask=(row < rows)[:, None] & (which < filters)[None, :])


@operator("smoothcert::conv_relu_pool")
def conv_relu_pool(images: Tensor, weight: Tensor, bias: Tensor, channels: int, size: int, flat: bool) -> Tensor:
    """Return max_pool2d(relu(conv2d(images) + bias), 2) for images [count, height, width, channels].

    `weight` is the result of `arrange` for filters of `size` x `size` pixels. The result has the layout of `images` or,
    with `flat`, that of a linear layer's input: [count, filters * new height * new width].
    """
    images = images.contiguous()
    height, width = images.shape[1:3]
    filters, run = len(bias), triton.next_power_of_2((size + 1) * channels)
    out = images.new_empty(_shape(images, filters, size, flat))
    rows, turns = out.numel() // filters, len(weight) // _DEPTH
    block = 256 if turns == 1 else 128
    with torch.cuda.device_of(images):
        _conv_relu_pool_kernel[(triton.cdiv(rows, block),)](
            out, images, weight, bias, rows, height, width, channels, size + 1, filters, weight.shape[1] // 4, run,
            turns, block, _DEPTH, flat, num_warps=4 if turns == 1 else 8, num_stages=3,
        )  # fmt: skip
    return out


@conv_relu_pool.register_fake
def _(images: Tensor, weight: Tensor, bias: Tensor, channels: int, size: int, flat: bool) -> Tensor:
    return images.new_empty(_shape(images, len(bias), size, flat))


def _shape(images: Tensor, filters: int, size: int, flat: bool) -> tuple[int, ...]:
    count, height, width = images.shape[:3]
    down, across = (height - size + 1) // 2, (width - size + 1) // 2
    return (count, filters * down * across) if flat else (count, down, across, filters)


def arrange(weight: Tensor) -> Tensor:
    """Arrange filters [filters, channels, size, size] as the matrix `weight` of `conv_relu_pool`.

    There is a row for each value of a patch, line by line, and a column for each position in the pooling window and
    each filter. Each line, the filters and the rows are padded with zeros to the sizes that the kernel needs.
    """
    filters, channels, size = weight.shape[:3]
    along = (size + 1) * channels
    moved = [F.pad(weight, (dx, 1 - dx, dy, 1 - dy)) for dy in (0, 1) for dx in (0, 1)]
    table = torch.stack(moved).permute(3, 4, 2, 0, 1).reshape(size + 1, along, 4, filters)
    padding = (0, max(16, triton.next_power_of_2(filters)) - filters, 0, 0, 0, triton.next_power_of_2(along) - along)
    table = F.pad(table, padding).flatten(2).flatten(0, 1)
    return F.pad(table, (0, 0, 0, -len(table) % _DEPTH)).contiguous()
