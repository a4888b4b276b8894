"""Triton kernels for the 1x1 convolutions of bottlenecks: for one convolution, or for a chain of two or three.

A chain is a bottleneck's last convolution and the next bottleneck's first convolution, optionally preceded by the 3x3
convolution before them. The output of a bottleneck has four times as many channels as the outputs of its first two
convolutions, and memory bandwidth limits the speed. So a chain writes this output once, for the next shortcut, and does
not read it back. If a chain includes the 3x3 convolution, it does not write that convolution's output at all.

Tensor descriptors let the device copy tiles asynchronously; rows past the end are read as zeros and not written.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,import-untyped,import-not-found,misc"

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from smoothcert.kernels.operators import operator


class PointwiseTile(NamedTuple):
    """Tiling of a matrix product: rows, columns and depth of a tile, warps, and tiles loaded ahead (`stages`)."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


class ChainTile(NamedTuple):
    """Tiling of a chain: pixels per program (`rows`), warps, and tiles loaded ahead (`stages`).

    An iteration computes `columns` channels of the last convolution's output. `ahead` is the number of tiles loaded
    ahead in the 3x3 convolution, or 0 if the 3x3 convolution runs in a separate kernel.
    """

    rows: int
    columns: int
    warps: int
    stages: int
    ahead: int


# Chains that are not listed here are not faster, or do not fit into registers and shared memory.
CHAINS = {
    (64, 64, 64): ChainTile(128, 64, 4, 3, 4),
    (64, 64, 0): ChainTile(64, 64, 4, 3, 4),
    (64, 128, 0): ChainTile(64, 64, 4, 2, 3),
    (128, 128, 0): ChainTile(128, 64, 8, 3, 0),
    (128, 256, 0): ChainTile(64, 32, 4, 3, 3),
}
"""Tiles by the number of channels of a bottleneck, of the next bottleneck, and of a projected shortcut (0 if none)."""


def chain_tile(weight: Tensor, next_weight: Tensor) -> ChainTile | None:
    """Return the tile for a chain of two convolutions, or None if they should run separately."""
    return CHAINS.get(_key(weight, next_weight))


def _key(weight: Tensor, next_weight: Tensor) -> tuple[int, int, int]:
    width = len(weight) // 4
    return width, len(next_weight), weight.shape[3] - width


def _described(tensor: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """Return the descriptor of a matrix whose rows are pixels or filters, copied in tiles of `rows` x `columns`."""
    return TensorDescriptor.from_tensor(tensor.contiguous().view(-1, tensor.shape[-1]), [rows, columns])


@triton.jit
def _pointwise_kernel(
    out, images, weight, bias, shortcut,
    channels: tl.constexpr, filters: tl.constexpr, adding: tl.constexpr,
    block: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    # Programs that read the same rows are neighbors.
    row = tl.program_id(0) // (filters // columns) * block
    column = tl.program_id(0) % (filters // columns) * columns
    total = tl.zeros([block, columns], tl.float32) + tl.load(bias + column + tl.arange(0, columns))[None, :]
    if adding:
        total += shortcut.load([row, column])
    for start in tl.range(0, channels, depth):
        total = tl.dot(images.load([row, start]), weight.load([column, start]).T, total)
    out.store([row, column], tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL).to(out.dtype))


def pointwise(
    out: Tensor, images: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, tile: PointwiseTile
) -> None:
    """Write relu(conv2d(images) + bias + shortcut) for images [count, height, width, channels].

    `weight` is [filters, 1, 1, channels].
    """
    filters, channels = len(weight), images.shape[3]
    _pointwise_kernel[(triton.cdiv(out.numel() // filters, tile.rows) * (filters // tile.columns),)](
        _described(out, tile.rows, tile.columns), _described(images, tile.rows, tile.depth),
        _described(weight, tile.columns, tile.depth), bias,
        None if shortcut is None else _described(shortcut, tile.rows, tile.columns),
        channels, filters, shortcut is not None, tile.rows, tile.columns, tile.depth,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip


@triton.jit
def _chain_kernel(
    out, narrow, images, middle_weight, middle_bias, weight, bias, shortcut, next_weight, next_bias, rows,
    height: tl.constexpr, across: tl.constexpr, width: tl.constexpr, wide: tl.constexpr, next_width: tl.constexpr,
    projecting: tl.constexpr, block: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr, ahead: tl.constexpr,
):  # fmt: skip
    """Compute `chain`. Each iteration computes `columns` channels of `out` and adds their part of the next output."""
    row = tl.program_id(0) * block
    if ahead:
        pixel = row + tl.arange(0, block)
        y, x, place = pixel // across % height, pixel % across, tl.arange(0, depth)
        parts: tl.constexpr = width // depth
        middle = tl.zeros([block, width], tl.float32) + tl.load(middle_bias + tl.arange(0, width))[None, :]
        for turn in tl.range(9 * parts, num_stages=ahead):
            dy, dx = turn // parts // 3 - 1, turn // parts % 3 - 1
            inside = (pixel < rows) & (y + dy >= 0) & (y + dy < height) & (x + dx >= 0) & (x + dx < across)
            seen = pixel.to(tl.int64) * width + ((dy * across + dx) * width + turn % parts * depth)
            patches = tl.load(images + seen[:, None] + place[None, :], mask=inside[:, None], other=0.0)
            middle = tl.dot(patches, middle_weight.load([0, turn * depth]).T, middle)
        inputs = tl.maximum(middle, 0.0, propagate_nan=tl.PropagateNan.ALL).to(out.dtype)  # NaN must not become votes
    else:
        inputs = images.load([row, 0])
    if projecting:
        sources = shortcut.load([row, 0])
    total = tl.zeros([block, next_width], tl.float32)
    for start in tl.range(0, wide, columns):
        # Add the shortcut last: otherwise, the compiler would not start loading it before the products.
        made = tl.dot(inputs, weight.load([start, 0]).T) + tl.load(bias + start + tl.arange(0, columns))[None, :]
        if projecting:
            made = tl.dot(sources, weight.load([start, width]).T, made)
        else:
            made += shortcut.load([row, start])
        rounded = tl.maximum(made, 0.0, propagate_nan=tl.PropagateNan.ALL).to(out.dtype)
        out.store([row, start], rounded)
        total = tl.dot(rounded, next_weight.load([0, start]).T, total)
    total += tl.load(next_bias + tl.arange(0, next_width))[None, :]
    narrow.store([row, 0], tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL).to(narrow.dtype))


@operator("smoothcert::chain")
def chain(
    images: Tensor, shortcut: Tensor, middle: list[Tensor], last: list[Tensor], following: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return wide = relu(last(images) + shortcut) and relu(following(wide)).

    Images and results are [count, height, width, channels]. Each convolution is [weight, bias], with a weight [filters,
    size, size, channels]. If `middle` is not empty, this 3x3 convolution and a ReLU are applied to `images` first. If
    the weight of `last` has more input channels than `images`, the additional channels project the shortcut.
    """
    (weight, bias), (next_weight, next_bias) = last, following
    wide, (width, next_width, given) = len(weight), _key(weight, next_weight)
    tile = CHAINS[width, next_width, given]
    ahead, depth, images = tile.ahead if middle else 0, 64, images.contiguous()
    out, narrow = (images.new_empty(*images.shape[:3], channels) for channels in (wide, next_width))
    rows = out.numel() // wide
    with torch.cuda.device_of(images):
        _chain_kernel[(triton.cdiv(rows, tile.rows),)](
            _described(out, tile.rows, tile.columns), _described(narrow, tile.rows, next_width),
            images if ahead else _described(images, tile.rows, width),
            _described(middle[0].flatten(1), width, depth) if ahead else None, middle[1] if ahead else None,
            _described(weight, tile.columns, width), bias,
            _described(shortcut, tile.rows, given or tile.columns),
            _described(next_weight, next_width, tile.columns), next_bias, rows,
            *images.shape[1:3], width, wide, next_width, given > 0,
            tile.rows, tile.columns, depth, ahead, num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
    return out, narrow


@chain.register_fake
def _(
    images: Tensor, shortcut: Tensor, middle: list[Tensor], last: list[Tensor], following: list[Tensor]
) -> tuple[Tensor, Tensor]:
    pixels = images.shape[:3]
    return images.new_empty(*pixels, len(last[0])), images.new_empty(*pixels, len(following[0]))
