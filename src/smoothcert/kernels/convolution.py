"""Triton kernels for 3x3 convolutions with few channels and their gradients, as matrix products.

Images are divided into blocks of pixels: `step` lines by two pixels. A convolution is then a product of two matrices. A
row of the first matrix is the patch around a block: `step` + 2 lines of four pixels, each line contiguous in memory. A
column of the second matrix is a filter at one position in the block. In this way, even few channels fill a tile, and
patches overlap less. The gradient of the input is the same product with rotated (`turned`) filters. The gradient of the
filters is the product of the patches with the gradients of the blocks. Bias, shortcut, ReLU and partial statistics are
computed before values leave the registers.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,import-untyped,import-not-found,misc"

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


class ConvolutionTile(NamedTuple):
    """Tiling of a matrix product: lines per block of pixels (`step`), rows (`block`) and depth of a tile.

    The other fields are launch options: warps per program, tiles loaded ahead (`stages`), programs per multiprocessor.
    """

    step: int
    block: int
    depth: int
    warps: int
    stages: int
    programs: int

    @property
    def registers(self) -> int:
        """Maximum number of registers per thread."""
        return min(_REGISTERS // (self.programs * self.warps * 32), 255) // 8 * 8


# By number of channels. With `FILTER_TILES`, an iteration sums over `block` rows, for `depth` values of the patches.
TILES = {
    16: ConvolutionTile(1, 256, 64, 8, 3, 2),
    32: ConvolutionTile(2, 128, 64, 8, 3, 1),
    64: ConvolutionTile(1, 64, 64, 8, 3, 2),
    128: ConvolutionTile(1, 64, 64, 8, 4, 1),
}
FILTER_TILES = {
    16: ConvolutionTile(2, 128, 64, 4, 3, 2),
    32: ConvolutionTile(1, 64, 64, 4, 4, 3),
    64: ConvolutionTile(1, 64, 128, 4, 3, 2),
    128: ConvolutionTile(1, 64, 128, 8, 3, 1),
}
PROGRAMS = 128  # approximate number of programs that compute a gradient of filters
_GATHERED = 16  # values of the gradient per program when partial sums are added up
_REGISTERS = 65536  # per multiprocessor


@triton.jit
def _block_of_pixels(row, height: tl.constexpr, width: tl.constexpr, step: tl.constexpr):
    """Return the first pixel of block number `row`: its index across all images, its line and its column."""
    across: tl.constexpr = width // 2
    blocks: tl.constexpr = height // step * across
    image, which = row // blocks, row % blocks
    down, right = which // across * step, which % across * 2
    return (image * height + down) * width + right, down, right


@triton.jit
def _patches(
    source, row, known, turn,
    height: tl.constexpr, width: tl.constexpr, channels: tl.constexpr, step: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    """For each block number in `row`, load `depth` values of the block's patch, starting at value `turn` * `depth`."""
    run: tl.constexpr = 4 * channels
    runs: tl.constexpr = run // depth if run > depth else 1  # iterations per line
    pixel, down, right = _block_of_pixels(row, height, width, step)
    place = tl.arange(0, depth)
    line, along = turn * depth // run + place // run, turn % runs * depth + place % run
    side = turn % runs * depth // channels + place // channels % 4
    y, x = down[:, None] - 1 + line[None, :], right[:, None] - 1 + side[None, :]
    inside = known[:, None] & (y >= 0) & (y < height) & (x >= 0) & (x < width)
    values = source + ((pixel - width - 1) * channels)[:, None] + (line * (width * channels) + along)[None, :]
    return tl.load(tl.max_contiguous(values, (1, 8)), mask=inside, other=0.0)


@triton.jit
def _factors(
    weight, turn, channels: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr, turned: tl.constexpr
):  # fmt: skip
    """Load factors [depth, columns] for the values of `_patches` from `weight` [filter, line, pixel, channel]."""
    run: tl.constexpr = 4 * channels
    runs: tl.constexpr = run // depth if run > depth else 1
    column, place = tl.arange(0, columns), tl.arange(0, depth)
    line = turn * depth // run + place // run
    side = turn % runs * depth // channels + place // channels % 4
    y = line[:, None] - (column // (2 * channels))[None, :]
    x = side[:, None] - (column // channels % 2)[None, :]
    inside = (y >= 0) & (y < 3) & (x >= 0) & (x < 3)
    # Two expressions, since loads are wide only if the compiler sees that channels are contiguous.
    channel = place % channels if depth >= channels else (turn % runs * depth + place) % channels
    given, made = channel[:, None], (column % channels)[None, :]
    if turned:
        values = tl.max_contiguous(weight + (given * 9 + 8 - y * 3 - x) * channels + made, (1, 8))
    else:
        values = tl.max_contiguous(weight + (made * 9 + y * 3 + x) * channels + given, (8, 1))
    return tl.load(values, mask=inside, other=0.0)


# The number of iterations (`turns`) is not a constant: unrolled loops would need too many registers.
@triton.jit(do_not_specialize=["turns"])
def _convolve_kernel(
    out, parts, source, weight, bias, added, kept, normal, moments, rows, turns,
    height: tl.constexpr, width: tl.constexpr, channels: tl.constexpr, step: tl.constexpr, turned: tl.constexpr,
    rectified: tl.constexpr, block: tl.constexpr, depth: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    """Compute `convolve` for `block` blocks of pixels."""
    columns: tl.constexpr = 2 * step * channels
    row, column = tl.program_id(0) * block + tl.arange(0, block), tl.arange(0, columns)
    known, channel = row < rows, column % channels
    pixel = _block_of_pixels(row, height, width, step)[0]
    spot = column // (2 * channels) * (width * channels) + column % (2 * channels)
    put = tl.max_contiguous((pixel * channels)[:, None] + spot[None, :], (1, 8))
    total = tl.zeros([block, columns], tl.float32)
    if bias is not None:
        total += tl.load(bias + channel)[None, :]
    if added is not None:  # added first: at the end, registers could not also hold the shortcut
        total += tl.load(added + put, mask=known[:, None], other=0.0)
    for turn in tl.range(turns, num_stages=stages):
        patches = _patches(source, row, known, turn, height, width, channels, step, depth)
        total = tl.dot(patches, _factors(weight, turn, channels, columns, depth, turned), total)
    if rectified:
        total = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL)  # NaN shows that a run diverges
    if kept is not None:
        total = tl.where(tl.load(kept + put, mask=known[:, None], other=0.0) > 0, total, 0.0)
    made = total.to(out.dtype.element_ty)
    tl.store(out + put, made, mask=known[:, None])
    if parts is not None:
        value, target = made.to(tl.float32), parts + tl.program_id(0) * (2 * columns) + column
        if normal is not None:  # sums of gradients, and of gradients times normalized values
            mean, scale = tl.load(moments + channel), tl.load(moments + 2 * channels + channel)
            z = tl.load(normal + put, mask=known[:, None], other=0.0).to(tl.float32)
            first = tl.sum(value, axis=0)
            second = tl.sum(value * (z - mean[None, :]), axis=0) * scale
        else:  # means and centered sums of squares
            first = tl.sum(value, axis=0) / tl.minimum(rows - tl.program_id(0) * block, block)
            around = tl.where(known[:, None], value - first[None, :], 0.0)
            second = tl.sum(around * around, axis=0)
        tl.store(target, first)
        tl.store(target + columns, second)


@triton.jit(do_not_specialize=["turns"])
def _filters_kernel(
    out, gradient, source, rows, turns,
    height: tl.constexpr, width: tl.constexpr, channels: tl.constexpr, step: tl.constexpr, block: tl.constexpr,
    depth: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    """Compute partial sums for the gradient of filters, each over a share of all blocks of pixels.

    A program multiplies `depth` values of the patches with the gradients in all columns.
    """
    columns: tl.constexpr = 2 * step * channels
    values: tl.constexpr = (step + 2) * 4 * channels
    column = tl.arange(0, columns)
    spot = column // (2 * channels) * (width * channels) + column % (2 * channels)
    total = tl.zeros([columns, depth], tl.float32)
    for turn in tl.range(turns, num_stages=stages):
        row = (tl.program_id(0) * turns + turn) * block + tl.arange(0, block)
        known = row < rows
        pixel = _block_of_pixels(row, height, width, step)[0]
        take = tl.max_contiguous((pixel * channels)[:, None] + spot[None, :], (1, 8))
        arrived = tl.load(gradient + take, mask=known[:, None], other=0.0)
        patches = _patches(source, row, known, tl.program_id(1), height, width, channels, step, depth)
        total = tl.dot(tl.trans(arrived), patches, total)
    target = (tl.program_id(0) * columns + column)[:, None] * values + tl.program_id(1) * depth
    tl.store(out + target + tl.arange(0, depth)[None, :], total)


@triton.jit
def _gather_kernel(
    out, table, parts, channels: tl.constexpr, step: tl.constexpr, block: tl.constexpr, depth: tl.constexpr
):  # fmt: skip
    """Compute `block` values of the gradient of filters: sum over all partial sums and positions."""
    columns: tl.constexpr = 2 * step * channels
    values: tl.constexpr = (step + 2) * 4 * channels
    element = tl.program_id(0) * block + tl.arange(0, block)
    channel, tap, which = element % channels, element // channels % 9, element // (9 * channels)
    total = tl.zeros([block], tl.float32)
    for first in tl.range(0, parts, depth):
        part = first + tl.arange(0, depth)
        for place in tl.static_range(2 * step):
            value = ((tap // 3 + place // 2) * 4 + tap % 3 + place % 2) * channels + channel
            where = (place * channels + which) * values + value
            found = table + part[:, None] * (columns * values) + where[None, :]
            total += tl.sum(tl.load(found, mask=(part < parts)[:, None], other=0.0), axis=0)
    tl.store(out + element, total)


def new_parts(images: Tensor) -> tuple[Tensor, int]:
    """Allocate `parts` [programs, 2, positions * channels] for `convolve`; also return the rows per program."""
    channels = images.shape[3]
    tile = TILES[channels]
    columns = 2 * tile.step * channels
    return images.new_empty(
        (triton.cdiv(images.numel() // columns, tile.block), 2, columns), dtype=torch.float32
    ), tile.block


def convolve(
    images: Tensor, weight: Tensor, *, turned: bool = False, rectified: bool = False, out: Tensor | None = None,
    parts: Tensor | None = None, bias: Tensor | None = None, added: Tensor | None = None, kept: Tensor | None = None,
    normal: Tensor | None = None, moments: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Convolve images [count, height, width, channels] with `weight` [channels, 3, 3, channels].

    Add `bias` and `added`, and apply ReLU if `rectified`. With `turned`, `images` are the gradient of a convolution's
    output, and the result is the gradient of its input. If `kept` is given, the result is zero where `kept` is not
    positive. `added`, `kept` and `normal` have the shape of `images`.

    `parts` (see `new_parts`) receives two statistics per program and column: mean and centered sum of squares. If
    `normal` is given, the statistics are the sum, and the sum of products with the values of `normal` after they are
    normalized by `moments` [3, channels] (mean, variance and 1 / deviation).
    """
    _, height, width, channels = images.shape
    tile = TILES[channels]
    out = torch.empty_like(images) if out is None else out
    rows = images.numel() // (channels * 2 * tile.step)
    with torch.cuda.device_of(images):
        _convolve_kernel[(triton.cdiv(rows, tile.block),)](
            out, parts, images, weight, bias, added, kept, normal, moments, rows,
            (tile.step + 2) * 4 * channels // tile.depth,
            height, width, channels, tile.step, turned, rectified, tile.block, tile.depth, tile.stages,
            num_warps=tile.warps, maxnreg=tile.registers,
        )  # fmt: skip
    return out


def filters_gradient(gradient: Tensor, images: Tensor, out: Tensor) -> None:
    """Write the float32 gradient of filters [channels, 3, 3, channels], given the output's gradient and the input."""
    _, height, width, channels = images.shape
    tile = FILTER_TILES[channels]
    columns, values = 2 * tile.step * channels, (tile.step + 2) * 4 * channels
    rows = images.numel() // columns
    turns = triton.cdiv(rows, tile.block * triton.cdiv(PROGRAMS, values // tile.depth))
    parts = triton.cdiv(rows, tile.block * turns)
    table = images.new_empty((parts, columns, values), dtype=torch.float32)
    with torch.cuda.device_of(images):
        _filters_kernel[(parts, values // tile.depth)](
            table, gradient, images, rows, turns, height, width, channels, tile.step, tile.block, tile.depth,
            tile.stages, num_warps=tile.warps,
            maxnreg=tile.registers,
        )  # fmt: skip
        _gather_kernel[(out.numel() // _GATHERED,)](out, table, parts, channels, tile.step, _GATHERED, 32, num_warps=4)
