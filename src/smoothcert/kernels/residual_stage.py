"""Triton kernel for a whole stage of a CIFAR ResNet, for voting in bfloat16.

A program takes a few images through all blocks of a stage: each convolution reads the output of the previous one from
the caches, and programs do not wait for each other. A convolution is a matrix product. A row is a block of `step` lines
by two output pixels; its values are the patch of `step` + 2 lines by four pixels around it, each line contiguous in
memory. The columns are the filters at every position in the block.

The entry of a stage is the network's first convolution, or one that halves the image. In the latter, a row is one
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


class StageTile(NamedTuple):
    """Tiling of products: lines per block of pixels (`step`), rows (`block`) and depth of a tile, and launch options.

    `stages` tiles are loaded ahead, `vector` values are read at once, and `programs` share a multiprocessor.
    """

    step: int
    block: int
    depth: int
    warps: int
    stages: int
    vector: int
    programs: int


# By number of channels. Fixed tiles: with autotuning, the certified function would depend on timings.
TILES = {
    16: StageTile(2, 256, 64, 4, 2, 8, 2),
    32: StageTile(1, 128, 64, 4, 3, 8, 3),
    64: StageTile(1, 128, 64, 8, 3, 8, 2),
}
_ENTRY_DEPTH = 64
_REGISTERS = 65536  # per multiprocessor


@triton.jit
def _convolve(
    target, source, weight, bias, here, plane, turns,
    height: tl.constexpr, width: tl.constexpr, channels: tl.constexpr, filters: tl.constexpr, step: tl.constexpr,
    halving: tl.constexpr, adding: tl.constexpr,
    block: tl.constexpr, depth: tl.constexpr, stages: tl.constexpr, vector: tl.constexpr,
):  # fmt: skip
    """Convolve `here` images, add the values in `target` if `adding`, and apply ReLU.

    If `halving`, projections are written to `target` without ReLU, and the convolution's output to `target` + `plane`.
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
        if adding:  # added before the products: registers cannot hold both at the end
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
        rectified = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL)  # NaN scores must not become votes
        if halving:
            rectified = tl.where((column < filters)[None, :], total, rectified)
        tl.store(target + put, rectified.to(target.dtype.element_ty), mask=known[:, None])
    tl.debug_barrier()  # other threads read the output next


# The loop bounds are not constants: unrolled loops over the depth would need too many registers.
@triton.jit(do_not_specialize=["pairs", "entry_turns", "turns"])
def _stage_kernel(
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


def run_stage(
    images: Tensor, entry: Tensor, entry_bias: Tensor, weights: Tensor, biases: Tensor, tile: StageTile
) -> Tensor:
    """Apply a stage to images [count, height, width, channels].

    The other tensors are those of `models.cuda.residual_network.ResidualStage`.
    """
    images, channels = images.contiguous(), biases.shape[1] // (2 * tile.step)
    count, height, width, _ = shape = _shape(images, channels)
    both = images.new_empty((2, *shape))  # the output, and the values between the two convolutions of a block
    group = max(1, tile.block // (height // tile.step * (width // 2)))
    with torch.cuda.device_of(images):
        _stage_kernel[(triton.cdiv(count, group),)](
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
    """Call `run_stage` with the tile for this number of channels."""
    return run_stage(images, entry, entry_bias, weights, biases, TILES[channels])


@residual_stage.register_fake
def _(images: Tensor, entry: Tensor, entry_bias: Tensor, weights: Tensor, biases: Tensor, channels: int) -> Tensor:
    return images.new_empty(_shape(images, channels))


def _shape(images: Tensor, channels: int) -> tuple[int, int, int, int]:
    count, height, width, given = images.shape
    scale = 2 if 2 * given == channels else 1
    return count, height // scale, width // scale, channels
