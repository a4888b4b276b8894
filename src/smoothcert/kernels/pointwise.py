"""Convolutions of one pixel: alone, or as links of a chain that is one kernel.

A chain is a bottleneck's last convolution and the first of the bottleneck after it, and may begin with the 3x3
convolution before them. What the last one makes is four times as wide as all else, and memory sets the pace: chained,
it is written once, for the next shortcut, and not read back; what the 3x3 one makes is never written at all.

Products of plain matrices leave copying to the device by tensor descriptors: tiles arrive while others are at work,
rows past the end arrive as zeros and are not written.
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


class Tile(NamedTuple):
    """How products are cut: rows, columns and depth of a tile, warps, and tiles on their way."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


class ChainTile(NamedTuple):
    """How a chain is cut: pixels of a program, wide channels of a turn, warps, and turns on their way.

    `ahead` is how many turns of the 3x3 convolution are on their way, or 0 where that is a kernel of its own.
    """

    rows: int
    columns: int
    warps: int
    stages: int
    ahead: int


# By rule, as every tile. A chain that is not here does not pay, or has no room in registers and shared memory.
CHAINS = {
    (64, 64, 64): ChainTile(128, 64, 4, 3, 4),
    (64, 64, 0): ChainTile(64, 64, 4, 3, 4),
    (64, 128, 0): ChainTile(64, 64, 4, 2, 3),
    (128, 128, 0): ChainTile(128, 64, 8, 3, 0),
    (128, 256, 0): ChainTile(64, 32, 4, 3, 3),
}
"""Tiles by the channels of the bottleneck, of the next one, and of a shortcut to be projected (0, or as the first)."""


def chain_tile(weight: Tensor, next_weight: Tensor) -> ChainTile | None:
    """Return the tile that chains two convolutions, or None where they are kernels of their own."""
    return CHAINS.get(_key(weight, next_weight))


def _key(weight: Tensor, next_weight: Tensor) -> tuple[int, int, int]:
    width = len(weight) // 4
    return width, len(next_weight), weight.shape[3] - width


def _described(tensor: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """Describe the matrix whose rows are pixels, or filters, and the tile that is copied at once."""
    return TensorDescriptor.from_tensor(tensor.contiguous().view(-1, tensor.shape[-1]), [rows, columns])


@triton.jit
def _pointwise_kernel(
    out, images, weight, bias, shortcut,
    channels: tl.constexpr, filters: tl.constexpr, adding: tl.constexpr,
    block: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    # Programs that read the same rows follow one another.
    row = tl.program_id(0) // (filters // columns) * block
    column = tl.program_id(0) % (filters // columns) * columns
    total = tl.zeros([block, columns], tl.float32) + tl.load(bias + column + tl.arange(0, columns))[None, :]
    if adding:
        total += shortcut.load([row, column])
    for start in tl.range(0, channels, depth):
        total = tl.dot(images.load([row, start]), weight.load([column, start]).T, total)
    out.store([row, column], tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL).to(out.dtype))


def pointwise(out: Tensor, images: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, tile: Tile) -> None:
    """Write relu(conv2d + shortcut) into `out`; images are [count, height, width, channels], weights as in `chain`."""
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
    """Make wide images `columns` channels a turn, each turn's share of the products that follow at once."""
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
        inputs = tl.maximum(middle, 0.0, propagate_nan=tl.PropagateNan.ALL).to(out.dtype)  # NaN: no votes
    else:
        inputs = images.load([row, 0])
    if projecting:
        sources = shortcut.load([row, 0])
    total = tl.zeros([block, next_width], tl.float32)
    for start in tl.range(0, wide, columns):
        # The shortcut is not the first to be added: the compiler would start its copy no sooner than the products.
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
    """Return relu(last(images) + shortcut), and relu(following) of that; images are [count, height, width, channels].

    A convolution is its weight [filters, size, size, channels] and its bias. `middle` is a 3x3 one to be applied to the
    images first, and rectified, or empty. Channels left over in last's weight are for a projection of the shortcut.
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
