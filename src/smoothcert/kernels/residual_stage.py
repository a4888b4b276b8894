"""A stage of a CIFAR ResNet as one kernel on a CUDA device, for voting in bfloat16.

A program keeps a few images through all blocks of a stage: what one convolution writes the next one reads back from
the caches, and nothing waits for other images. A convolution is a matrix product. A row is a block of output pixels,
`step` lines by two; its values are the patch of `step` + 2 lines by four pixels around it, each line one run of memory;
the columns are the filters, in every place of the block.

So is what a stage begins with: the network's first convolution, or one that halves the image; of that, a row is one
pixel, and the columns are the projection of the shortcut and the filters.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,import-untyped,import-not-found,misc"

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from smoothcert.kernels.operators import operator


class Tile(NamedTuple):
    """How products are cut: lines of a block of pixels, then what decides speed.

    Rows and depth of a tile, warps, tiles on their way, values read at once, and programs that share a multiprocessor.
    """

    step: int
    block: int
    depth: int
    warps: int
    stages: int
    vector: int
    programs: int


# By width, and by rule: kernels chosen by timing would make the certified function depend on it.
TILES = {
    16: Tile(2, 256, 64, 4, 2, 8, 2),
    32: Tile(1, 128, 64, 4, 3, 8, 3),
    64: Tile(1, 128, 64, 8, 3, 8, 2),
}
_ENTRY_DEPTH = 64
_REGISTERS = 65536  # of a multiprocessor


@triton.jit
def _convolve(
    target, source, weight, bias, here, plane, turns,
    height: tl.constexpr, width: tl.constexpr, channels: tl.constexpr, filters: tl.constexpr, step: tl.constexpr,
    halving: tl.constexpr, adding: tl.constexpr,
    block: tl.constexpr, depth: tl.constexpr, stages: tl.constexpr, vector: tl.constexpr,
):  # fmt: skip
    """Convolve `here` images, add what lies in `target` to that if `adding`, and rectify.

    A halving one writes projections to `target`, not rectified, and the convolution `plane` values further on.
    """
    across: tl.constexpr = width // 2
    blocks: tl.constexpr = height // step * across
    run: tl.constexpr = 4 * channels
    runs: tl.constexpr = run // depth if run > depth else 1  # parts of a line
    columns: tl.constexpr = 2 * filters if halving else 2 * step * filters
    column, place = tl.arange(0, columns), tl.arange(0, depth)
    for tile in tl.range((here * blocks + block - 1) // block):
        row = tile * block + tl.arange(0, block)
        image, which = row // blocks, row % blocks
        down, right = which // across * step, which % across * 2
        known = image < here
        corner = ((image * height + down - 1) * width + right - 1) * channels
        if halving:
            spot = (column // filters).to(tl.int64) * plane + column % filters
            put = row[:, None] * filters + spot[None, :]
        else:
            spot = column // (2 * filters) * (width * filters) + column % (2 * filters)
            put = (((image * height + down) * width + right) * filters)[:, None] + spot[None, :]
        total = tl.zeros([block, columns], tl.float32) + tl.load(bias + column)[None, :]
        if adding:  # before the products: registers have no room for both at the end
            total += tl.load(target + put, mask=known[:, None], other=0.0)
        for turn in tl.range(turns, num_stages=stages):
            line, along = turn * depth // run + place // run, turn % runs * depth + place % run
            pixel = turn % runs * (depth // channels) + place // channels % 4
            y, x = down[:, None] - 1 + line[None, :], right[:, None] - 1 + pixel[None, :]
            inside = known[:, None] & (y >= 0) & (y < height) & (x >= 0) & (x < width)
            values = source + corner[:, None] + (line * (width * channels) + along)[None, :]
            patches = tl.load(tl.max_contiguous(values, (1, vector)), mask=inside, other=0.0)
            factors = tl.load(weight + (turn * depth + place)[:, None] * columns + column[None, :])
            total = tl.dot(patches, factors, total)
        rectified = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL)  # they are no votes
        if halving:
            rectified = tl.where((column < filters)[None, :], total, rectified)
        tl.store(target + put, rectified.to(target.dtype.element_ty), mask=known[:, None])
    tl.debug_barrier()  # other threads read next what was written


# Loops of unknown length: unrolled, those over the depth take more registers than there are.
@triton.jit(do_not_specialize=["pairs", "entry_turns", "turns"])
def _kernel(
    out, images, entry, entry_bias, weights, biases, count, plane, pairs, entry_turns, turns,
    height: tl.constexpr, width: tl.constexpr, channels: tl.constexpr, given: tl.constexpr, step: tl.constexpr,
    group: tl.constexpr, block: tl.constexpr, depth: tl.constexpr, entry_depth: tl.constexpr, stages: tl.constexpr,
    vector: tl.constexpr,
):  # fmt: skip
    size: tl.constexpr = height * width * channels
    columns: tl.constexpr = 2 * step * channels
    layer: tl.constexpr = (step + 2) * 4 * channels * columns
    halving: tl.constexpr = 2 * given == channels
    scale: tl.constexpr = 2 if halving else 1
    first = tl.program_id(0).to(tl.int64) * group
    here = tl.minimum(count - first, group).to(tl.int32)
    out += first * size
    middle = out + plane
    _convolve(
        out, images + first * (scale * height * scale * width * given), entry, entry_bias, here, plane, entry_turns,
        scale * height, scale * width, given, channels, 2 if halving else step, halving, False,
        block, entry_depth, stages, vector,
    )  # fmt: skip
    if halving:
        _convolve(
            out, middle, weights, biases, here, plane, turns, height, width, channels, channels, step, False, True,
            block, depth, stages, vector,
        )  # fmt: skip
        weights += layer
        biases += columns
    for _ in tl.range(pairs):
        _convolve(
            middle, out, weights, biases, here, plane, turns, height, width, channels, channels, step, False, False,
            block, depth, stages, vector,
        )  # fmt: skip
        _convolve(
            out, middle, weights + layer, biases + columns, here, plane, turns, height, width, channels, channels, step,
            False, True, block, depth, stages, vector,
        )  # fmt: skip
        weights += 2 * layer
        biases += 2 * columns


def run_stage(images: Tensor, entry: Tensor, entry_bias: Tensor, weights: Tensor, biases: Tensor, tile: Tile) -> Tensor:
    """Return what a stage makes of images [count, height, width, channels], as such images.

    The other tensors are those of a `residual_network.ResidualStage`.
    """
    images, channels = images.contiguous(), biases.shape[1] // (2 * tile.step)
    count, height, width, _ = shape = _shape(images, channels)
    both = images.new_empty((2, *shape))  # the second holds what lies between the two convolutions of a block
    group = max(1, tile.block // (height // tile.step * (width // 2)))
    with torch.cuda.device_of(images):
        _kernel[(triton.cdiv(count, group),)](
            both, images, entry, entry_bias, weights, biases, count, both[0].numel(), len(weights) // 2,
            len(entry) // _ENTRY_DEPTH, weights.shape[1] // tile.depth,
            height, width, channels, images.shape[3], tile.step, group, tile.block, tile.depth, _ENTRY_DEPTH,
            tile.stages, tile.vector, num_warps=tile.warps,
            maxnreg=min(_REGISTERS // (tile.programs * tile.warps * 32), 255) // 8 * 8,
        )  # fmt: skip
    return both[0]


@operator("smoothcert::residual_stage")
def residual_stage(
    images: Tensor, entry: Tensor, entry_bias: Tensor, weights: Tensor, biases: Tensor, channels: int
) -> Tensor:
    """Return what `run_stage` does, with the tile for so many channels."""
    return run_stage(images, entry, entry_bias, weights, biases, TILES[channels])


@residual_stage.register_fake
def _(images: Tensor, entry: Tensor, entry_bias: Tensor, weights: Tensor, biases: Tensor, channels: int) -> Tensor:
    return images.new_empty(_shape(images, channels))


def _shape(images: Tensor, channels: int) -> tuple[int, int, int, int]:
    count, height, width, given = images.shape
    scale = 2 if 2 * given == channels else 1
    return count, height // scale, width // scale, channels
