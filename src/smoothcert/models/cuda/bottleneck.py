"""ResNet-50 and its like on a CUDA device, for voting in bfloat16: a convolution with all that follows is one kernel.

A convolution is a matrix product: a row is an output pixel, its values are the inputs that a filter sees; the columns
are the filters. Bias, shortcut (projected or not) and ReLU are added before anything is written, so that every value is
written once, and read once by each convolution that needs it.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,import-untyped,import-not-found,misc"

from __future__ import annotations

from typing import Any, TypeGuard

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.kernels.operators import operator
from smoothcert.kernels.pointwise import Tile, chain, chain_tile, pointwise
from smoothcert.models.resnet import Bottleneck, ResNet

# By rule: kernels chosen by timing would make the certified function depend on it.
_STEM = Tile(128, 64, 32, 4, 3)
_NARROW = Tile(128, 64, 64, 4, 3)
_WIDE = Tile(128, 128, 64, 4, 3)
TILES = {
    (128, 128, 3): Tile(128, 128, 64, 8, 3),
    (256, 256, 3): Tile(128, 256, 64, 8, 4),
    (512, 512, 3): Tile(128, 256, 64, 8, 3),
    (768, 1024, 1): Tile(128, 128, 64, 8, 3),
    (1536, 2048, 1): Tile(128, 256, 64, 8, 3),
}
"""Better ones for ResNet-50, by input channels (those of a projection counted in), filters and size."""


def tile_for(channels: int, filters: int, size: int) -> Tile:
    """Return the tile for a convolution."""
    return TILES.get((channels, filters, size), _NARROW if filters % 128 else _WIDE)


@triton.jit
def _kernel(
    out, images, weight, bias, shortcut, rows,
    height: tl.constexpr, width: tl.constexpr, channels: tl.constexpr, filters: tl.constexpr, size: tl.constexpr,
    stride: tl.constexpr, narrow: tl.constexpr, adding: tl.constexpr, given: tl.constexpr, given_height: tl.constexpr,
    given_width: tl.constexpr, given_stride: tl.constexpr,
    block: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    """Convolve: a turn takes `depth` channels of a pixel that a filter sees or, of `narrow` images, a line.

    A shortcut of `given` channels is projected: its turns come last.
    """
    down: tl.constexpr = (height - 1) // stride + 1
    across: tl.constexpr = (width - 1) // stride + 1
    parts: tl.constexpr = channels // depth
    values: tl.constexpr = size * (depth if narrow else size * channels) + given
    # Programs that read the same rows follow one another.
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
    elif adding:  # before the products: registers have no room for both at the end
        total += tl.load(shortcut + target, mask=known[:, None], other=0.0)
    for turn in tl.range(values // depth):  # known when compiled, or products of wide tiles would wait for each other
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
    total = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL)  # they are no votes
    tl.store(out + target, total.to(out.dtype.element_ty), mask=known[:, None])


@operator("smoothcert::convolve")
def convolve(images: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, stride: int) -> Tensor:
    """Return relu(conv2d + shortcut) of images [count, height, width, channels], as such images.

    `weight` is [filters, size, size, channels] in memory or, for images of few channels, [filters, size, 32] with lines
    padded to that; the sides of the image are padded with zeros. A weight of one pixel that has channels left over has
    them for a projection of the shortcut, with the stride that makes sides fit.
    """
    images, (filters, size), narrow = images.contiguous(), weight.shape[:2], weight.dim() == 3
    height, width, channels = images.shape[1:]
    out = images.new_empty(_shape(images, filters, stride))
    rows = out.numel() // filters
    given = 0 if shortcut is None else weight.shape[3] - channels
    given_height, given_width = (0, 0) if shortcut is None else shortcut.shape[1:3]
    tile = _STEM if narrow else tile_for(channels + given, filters, size)
    with torch.cuda.device_of(images):
        if size == stride == 1 and not given:
            pointwise(out, images, weight, bias, shortcut, tile)
            return out
        _kernel[(triton.cdiv(rows, tile.rows) * (filters // tile.columns),)](
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


class Convolution(nn.Module):
    """A folded convolution, ready for the kernel; a projection of the shortcut is part of it."""

    weight: Tensor
    bias: Tensor

    def __init__(self, conv: Any, projection: Any | None = None) -> None:
        super().__init__()
        self.stride = conv.stride[0]
        parts = [conv] if projection is None else [conv, projection]
        weight = torch.cat([part.weight.detach() for part in parts], 1).permute(0, 2, 3, 1).contiguous()
        # Pixels of 4 channels are copied as a whole while others are at work; of 3, value by value.
        self.extra = -conv.in_channels % 4 if conv.in_channels < 64 else 0
        if conv.in_channels < 64:
            lines = F.pad(weight, (0, self.extra)).flatten(2)
            weight = F.pad(lines, (0, _STEM.depth - lines.shape[2]))
        self.register_buffer("weight", weight)
        self.register_buffer("bias", torch.stack([part.bias.detach().float() for part in parts]).sum(0))

    def forward(self, images: Tensor, shortcut: Tensor | None = None) -> Tensor:
        """Return images [count, height, width, filters] of such images."""
        images = F.pad(images, (0, self.extra)) if self.extra else images
        made: Tensor = convolve(images, self.weight, self.bias, shortcut, self.stride)
        return made


class _Link(nn.Module):
    """A folded bottleneck without its first convolution, and the first one of the bottleneck after it."""

    def __init__(self, block: Any, following: Any | None) -> None:
        super().__init__()
        projection = None if block.downsample is None else block.downsample[0]
        self.middle, self.last = Convolution(block.conv2), Convolution(block.conv3, projection)
        self.next = None if following is None else Convolution(following.conv1)
        self.tile = None
        if self.next is not None and self.middle.stride == 1:
            self.tile = chain_tile(self.last.weight, self.next.weight)

    def forward(self, images: Tensor, narrow: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next block's images, and what its first convolution makes of them, if there is one."""
        if self.next is not None and self.tile is not None:
            middle = [self.middle.weight, self.middle.bias] if self.tile.ahead else []
            last, following = [self.last.weight, self.last.bias], [self.next.weight, self.next.bias]
            chained: tuple[Tensor, Tensor] = chain(
                narrow if middle else self.middle(narrow), images, middle, last, following
            )
            return chained
        made = self.last(self.middle(narrow), images)
        return made, made if self.next is None else self.next(made)


class BottleneckNetwork(nn.Module):
    """A ResNet of bottlenecks by our kernels."""

    def __init__(self, network: ResNet) -> None:
        super().__init__()
        blocks = _blocks(network)
        self.stem, self.pool, self.fc = Convolution(network.conv1), network.pool, network.fc
        self.first = Convolution(blocks[0].conv1)
        self.links = nn.ModuleList(_Link(*pair) for pair in zip(blocks, [*blocks[1:], None], strict=True))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of a batch [count, channels, height, width]."""
        images = self.pool(self.stem(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        narrow = self.first(images)
        for link in self.links:
            images, narrow = link(images, narrow)
        scores: Tensor = self.fc(images.mean(dim=(1, 2)))
        return scores


def has_bottlenecks(network: nn.Module) -> TypeGuard[ResNet]:
    """Whether the kernel computes a network: a folded ResNet of bottlenecks whose widths are multiples of 64."""
    return (
        isinstance(network, ResNet)
        and -(-network.conv1.in_channels // 4) * 4 * network.conv1.kernel_size[0] <= _STEM.depth
        and all(isinstance(block, Bottleneck) and block.conv1.out_channels % 64 == 0 for block in _blocks(network))
        and not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    )


def _blocks(network: ResNet) -> list[Any]:
    stages: list[Any] = [network.get_submodule(f"layer{stage + 1}") for stage in range(network.stages)]
    return [block for stage in stages for block in stage]
