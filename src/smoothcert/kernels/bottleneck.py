"""ResNet-50 and its like on a CUDA device, for voting in bfloat16: a convolution with all that follows is one kernel.

A convolution is a matrix product: a row is an output pixel, its values are the inputs that a filter sees; the columns
are the filters. Bias, shortcut and ReLU are added before anything is written, so that every value is written once, and
read once by each convolution that needs it.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,import-untyped,import-not-found,misc"

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard

import torch
import triton
import triton.language as tl
from torch import Tensor, library, nn
from torch.nn import functional as F

from smoothcert.models.resnet import Bottleneck, ResNet


class Tile(NamedTuple):
    """How products are cut: rows, columns and depth of a tile, warps, and tiles on their way."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


# By rule: kernels chosen by timing would make the certified function depend on it.
_STEM = Tile(128, 64, 32, 4, 3)
_NARROW = Tile(128, 64, 64, 4, 4)
_WIDE = Tile(128, 128, 64, 8, 4)
TILES: dict[tuple[int, int, int], Tile] = {}
"""Better ones for some convolutions, by input channels, filters and size."""


def tile_for(channels: int, filters: int, size: int) -> Tile:
    """Return the tile for a convolution."""
    return TILES.get((channels, filters, size), _NARROW if filters % 128 else _WIDE)


@triton.jit
def _kernel(
    out, images, weight, bias, shortcut, rows, turns,
    height: tl.constexpr, width: tl.constexpr, channels: tl.constexpr, filters: tl.constexpr, size: tl.constexpr,
    stride: tl.constexpr, adding: tl.constexpr, rectifying: tl.constexpr, narrow: tl.constexpr,
    block: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    """Convolve: a turn takes `depth` channels of a pixel that a filter sees or, of `narrow` images, a line."""
    down: tl.constexpr = (height - 1) // stride + 1
    across: tl.constexpr = (width - 1) // stride + 1
    parts: tl.constexpr = channels // depth
    values: tl.constexpr = size * (depth if narrow else size * channels)
    # Programs that read the same rows follow one another.
    row = tl.program_id(0) // (filters // columns) * block + tl.arange(0, block)
    column = tl.program_id(0) % (filters // columns) * columns + tl.arange(0, columns)
    place = tl.arange(0, depth)
    image, pixel = (row // (down * across)).to(tl.int64), row % (down * across)
    y, x = pixel // across * stride - size // 2, pixel % across * stride - size // 2
    corner = ((image * height + y) * width + x) * channels
    known = row < rows
    target = row.to(tl.int64)[:, None] * filters + column[None, :]
    total = tl.zeros([block, columns], tl.float32) + tl.load(bias + column)[None, :]
    if adding:  # before the products: registers have no room for both at the end
        total += tl.load(shortcut + target, mask=known[:, None], other=0.0)
    for turn in tl.range(turns):
        if narrow:
            across_line = x[:, None] + (place // channels)[None, :]
            inside = (known & (y + turn >= 0) & (y + turn < height))[:, None] & (place < size * channels)[None, :]
            inside = inside & (across_line >= 0) & (across_line < width)
            start = corner + turn * (width * channels)
        else:
            dy, dx = turn // parts // size, turn // parts % size
            inside = known[:, None]
            if size > 1:
                inside = (known & (y + dy >= 0) & (y + dy < height) & (x + dx >= 0) & (x + dx < width))[:, None]
            start = corner + (dy * width + dx) * channels + turn % parts * depth
        patches = tl.load(images + start[:, None] + place[None, :], mask=inside, other=0.0)
        factors = tl.load(weight + column[None, :] * values + (turn * depth + place)[:, None])
        total = tl.dot(patches, factors, total)
    if rectifying:
        total = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL)  # they are no votes
    tl.store(out + target, total.to(out.dtype.element_ty), mask=known[:, None])


@library.custom_op("smoothcert::convolve", mutates_args=())
def convolve(
    images: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, stride: int, rectifying: bool
) -> Tensor:
    """Return conv2d of images [count, height, width, channels] plus a shortcut, rectified or not, as such images.

    `weight` is [filters, size, size, channels] in memory or, for images of few channels, [filters, size, 32] with lines
    padded to that; the sides of the image are padded with zeros.
    """
    images, (filters, size), narrow = images.contiguous(), weight.shape[:2], weight.dim() == 3
    height, width, channels = images.shape[1:]
    tile = _STEM if narrow else tile_for(channels, filters, size)
    out = images.new_empty(_shape(images, filters, stride))
    rows = out.numel() // filters
    with torch.cuda.device_of(images):
        _kernel[(triton.cdiv(rows, tile.rows) * (filters // tile.columns),)](
            out, images, weight, bias, shortcut, rows, weight.numel() // filters // tile.depth,
            height, width, channels, filters, size, stride, shortcut is not None, rectifying, narrow,
            tile.rows, tile.columns, tile.depth, num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
    return out


@convolve.register_fake
def _(images: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, stride: int, rectifying: bool) -> Tensor:
    return images.new_empty(_shape(images, len(weight), stride))


def _shape(images: Tensor, filters: int, stride: int) -> tuple[int, int, int, int]:
    count, height, width, _ = images.shape
    return count, (height - 1) // stride + 1, (width - 1) // stride + 1, filters


class Convolution(nn.Module):
    """A folded convolution, ready for the kernel."""

    weight: Tensor
    bias: Tensor

    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.stride = conv.stride[0]
        weight = conv.weight.detach().permute(0, 2, 3, 1).contiguous()
        if conv.in_channels < 64:
            lines = weight.flatten(2)
            weight = F.pad(lines, (0, _STEM.depth - lines.shape[2]))
        self.register_buffer("weight", weight)
        self.register_buffer("bias", conv.bias.detach().float())

    def forward(self, images: Tensor, shortcut: Tensor | None = None, rectifying: bool = True) -> Tensor:
        """Return images [count, height, width, filters] of such images."""
        made: Tensor = convolve(images, self.weight, self.bias, shortcut, self.stride, rectifying)
        return made


class _Block(nn.Module):
    """A folded bottleneck."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.projection = None if block.downsample is None else Convolution(block.downsample[0])
        self.first, self.middle, self.last = map(Convolution, (block.conv1, block.conv2, block.conv3))

    def forward(self, images: Tensor) -> Tensor:
        shortcut = images if self.projection is None else self.projection(images, rectifying=False)
        made: Tensor = self.last(self.middle(self.first(images)), shortcut)
        return made


class BottleneckNetwork(nn.Module):
    """A ResNet of bottlenecks by our kernel."""

    def __init__(self, network: ResNet) -> None:
        super().__init__()
        self.stem, self.pool, self.fc = Convolution(network.conv1), network.pool, network.fc
        self.blocks = nn.Sequential(*(_Block(block) for block in _blocks(network)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of a batch [count, channels, height, width]."""
        images = self.pool(self.stem(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        scores: Tensor = self.fc(self.blocks(images).mean(dim=(1, 2)))
        return scores


def has_bottlenecks(network: nn.Module) -> TypeGuard[ResNet]:
    """Whether the kernel computes a network: a folded ResNet of bottlenecks whose widths are multiples of 64."""
    return (
        isinstance(network, ResNet)
        and network.conv1.in_channels * network.conv1.kernel_size[0] <= _STEM.depth
        and all(isinstance(block, Bottleneck) and block.conv1.out_channels % 64 == 0 for block in _blocks(network))
        and not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    )


def _blocks(network: ResNet) -> list[Any]:
    stages: list[Any] = [network.get_submodule(f"layer{stage + 1}") for stage in range(network.stages)]
    return [block for stage in stages for block in stage]
