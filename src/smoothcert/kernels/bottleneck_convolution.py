"""Triton kernel for the convolutions of ResNet-50, fused with bias, shortcut and ReLU, for voting in bfloat16.

A convolution is computed as a product of two matrices: a row of the first matrix contains the inputs that a filter
covers at one output pixel, and a column of the second matrix is a filter. Bias, shortcut (projected or not) and ReLU
are applied before the result is stored, so that every output value is written to memory only once.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,import-untyped,import-not-found,misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from smoothcert.kernels.operators import operator
from smoothcert.kernels.pointwise import PointwiseTile, pointwise

# Fixed tiles: with autotuning, the certified function would depend on timings.
STEM_TILE = PointwiseTile(128, 64, 32, 4, 3)
_NARROW = PointwiseTile(128, 64, 64, 4, 3)
_WIDE = PointwiseTile(128, 128, 64, 4, 3)
TILES = {
    (128, 128, 3): PointwiseTile(128, 128, 64, 8, 3),
    (256, 256, 3): PointwiseTile(128, 256, 64, 8, 4),
    (512, 512, 3): PointwiseTile(128, 256, 64, 8, 3),
    (768, 1024, 1): PointwiseTile(128, 128, 64, 8, 3),
    (1536, 2048, 1): PointwiseTile(128, 256, 64, 8, 3),
}
"""Tiles that beat the default for ResNet-50, by input channels (including the shortcut's), filters and filter size."""


@triton.jit
def _convolve_kernel(
    out, images, weight, bias, shortcut, rows,
    height: tl.constexpr, width: tl.constexpr, channels: tl.constexpr, filters: tl.constexpr, size: tl.constexpr,
    stride: tl.constexpr, narrow: tl.constexpr, adding: tl.constexpr, given: tl.constexpr, given_height: tl.constexpr,
    given_width: tl.constexpr, given_stride: tl.constexpr,
    block: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    """Compute a tile of `convolve`.

    An iteration adds the products of `depth` channels of a pixel or, if `narrow`, of one line of a patch. If
    `given` is not 0, the last iterations project a shortcut with `given` channels.
    """
    down: tl.constexpr = (height - 1) // stride + 1
    across: tl.constexpr = (width - 1) // stride + 1
    parts: tl.constexpr = channels // depth
    values: tl.constexpr = size * (depth if narrow else size * channels) + given
    # Programs that read the same rows are neighbors.
    row = tl.program_id(0) // (filters // columns) * block + tl.arange(0, block)
    column = tl.program_id(0) % (filters // columns) * columns + tl.arange(0, columns)
    place = tl.arange(0, depth)
    image, pixel = (row // (down * across)).to(tl.int64), row % (down * across)
    y, x = pixel // across * stride - size // 2, pixel % across * stride - size // 2
    corner = ((image * height + y) * width + x) * channels
    known = row < rows
    target = row.to(tl.int64)[:, None] * filters + column[None, :]
    total = tl.zeros([block, columns], tl.float32)
    if given:
        line = image * given_height + pixel // across * given_stride
        origin = (line * given_width + pixel % across * given_stride) * given - channels
    elif adding:  # added first: at the end, registers could not also hold the shortcut
        total += tl.load(shortcut + target, mask=known[:, None], other=0.0)
    for turn in tl.range(values // depth):  # a constant range: otherwise, products of wide tiles run one after another
        source, inside = images, known[:, None]
        if narrow:
            across_line = x[:, None] + (place // channels)[None, :]
            inside = (known & (y + turn >= 0) & (y + turn < height))[:, None] & (place < size * channels)[None, :]
            inside = inside & (across_line >= 0) & (across_line < width)
            start = corner + turn * (width * channels)
        elif given:
            source = tl.where(turn < parts, images, shortcut)
            start = tl.where(turn < parts, corner, origin) + turn * depth
        else:
            dy, dx = turn // parts // size, turn // parts % size
            if size > 1:
                inside = (known & (y + dy >= 0) & (y + dy < height) & (x + dx >= 0) & (x + dx < width))[:, None]
            start = corner + (dy * width + dx) * channels + turn % parts * depth
        patches = tl.load(source + start[:, None] + place[None, :], mask=inside, other=0.0)
        factors = tl.load(weight + column[None, :] * values + (turn * depth + place)[:, None])
        total = tl.dot(patches, factors, total)
    total += tl.load(bias + column)[None, :]
    total = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL)  # NaN scores must not become votes
    tl.store(out + target, total.to(out.dtype.element_ty), mask=known[:, None])


@operator("smoothcert::convolve")
def convolve(images: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, stride: int) -> Tensor:
    """Return relu(conv2d(images) + bias + shortcut) for images [count, height, width, channels], in the same layout.

    `weight` is [filters, size, size, channels] or, for images with few channels, [filters, size, 32], with each line of
    a filter padded with zeros to 32 values. Image borders are padded with zeros. If a 1x1 weight has more input
    channels than the images, the additional channels project the shortcut, with the stride that makes the sizes match.
    """
    images, (filters, size), narrow = images.contiguous(), weight.shape[:2], weight.dim() == 3
    height, width, channels = images.shape[1:]
    out = images.new_empty(_shape(images, filters, stride))
    rows = out.numel() // filters
    given = 0 if shortcut is None else weight.shape[3] - channels
    given_height, given_width = (0, 0) if shortcut is None else shortcut.shape[1:3]
    default = _NARROW if filters % 128 else _WIDE
    tile = STEM_TILE if narrow else TILES.get((channels + given, filters, size), default)
    with torch.cuda.device_of(images):
        if size == stride == 1 and not given:
            pointwise(out, images, weight, bias, shortcut, tile)
            return out
        _convolve_kernel[(triton.cdiv(rows, tile.rows) * (filters // tile.columns),)](
            out, images, weight, bias, None if shortcut is None else shortcut.contiguous(), rows,
            height, width, channels, filters, size, stride, narrow, shortcut is not None,
            given, given_height, given_width, max(-(-given_height // out.shape[1]), -(-given_width // out.shape[2])),
            tile.rows, tile.columns, tile.depth, num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
    return out


@convolve.register_fake
def _(images: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, stride: int) -> Tensor:
    return images.new_empty(_shape(images, len(weight), stride))


def _shape(images: Tensor, filters: int, stride: int) -> tuple[int, int, int, int]:
    count, height, width, _ = images.shape
    return count, (height - 1) // stride + 1, (width - 1) // stride + 1, filters
