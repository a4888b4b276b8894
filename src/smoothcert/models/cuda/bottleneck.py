"""ResNet-50 and other bottleneck ResNets on our Triton kernels, for voting in bfloat16."""

# mypy: disable-error-code="no-untyped-call,no-any-return"

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.kernels.bottleneck_convolution import STEM_TILE, convolve
from smoothcert.kernels.pointwise import chain, chain_tile
from smoothcert.models.resnet import Bottleneck, ResNet


class Convolution(nn.Module):
    """A convolution without BatchNorm, with weights in the layout of the kernel; may include a shortcut projection."""

    weight: Tensor
    bias: Tensor

    def __init__(self, conv: Any, projection: Any | None = None) -> None:
        super().__init__()
        self.stride = conv.stride[0]
        parts = [conv] if projection is None else [conv, projection]
        weight = torch.cat([part.weight.detach() for part in parts], 1).permute(0, 2, 3, 1).contiguous()
        # Pad to 4 channels, so that a pixel is copied asynchronously as a whole instead of value by value.
        self.extra = -conv.in_channels % 4 if conv.in_channels < 64 else 0
        if conv.in_channels < 64:
            lines = F.pad(weight, (0, self.extra)).flatten(2)
            weight = F.pad(lines, (0, STEM_TILE.depth - lines.shape[2]))
        self.register_buffer("weight", weight)
        self.register_buffer("bias", torch.stack([part.bias.detach().float() for part in parts]).sum(0))

    def forward(self, images: Tensor, shortcut: Tensor | None = None) -> Tensor:
        """Convolve images [count, height, width, channels]; return images [count, height, width, filters]."""
        images = F.pad(images, (0, self.extra)) if self.extra else images
        return convolve(images, self.weight, self.bias, shortcut, self.stride)


class _Link(nn.Module):
    """The second and third convolution of a bottleneck, and the first convolution of the next bottleneck."""

    def __init__(self, block: Any, following: Any | None) -> None:
        super().__init__()
        projection = None if block.downsample is None else block.downsample[0]
        self.middle, self.last = Convolution(block.conv2), Convolution(block.conv3, projection)
        self.next = None if following is None else Convolution(following.conv1)
        self.tile = None
        if self.next is not None and self.middle.stride == 1:
            self.tile = chain_tile(self.last.weight, self.next.weight)

    def forward(self, images: Tensor, narrow: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output of this block and the output of the next block's first convolution.

        For the last block, return its output twice.
        """
        if self.next is not None and self.tile is not None:
            middle = [self.middle.weight, self.middle.bias] if self.tile.ahead else []
            last, following = [self.last.weight, self.last.bias], [self.next.weight, self.next.bias]
            return chain(narrow if middle else self.middle(narrow), images, middle, last, following)
        output = self.last(self.middle(narrow), images)
        return output, output if self.next is None else self.next(output)


class BottleneckNetwork(nn.Module):
    """A bottleneck ResNet that runs on our Triton kernels."""

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
        return self.fc(images.mean(dim=(1, 2)))


def has_bottlenecks(network: nn.Module) -> TypeGuard[ResNet]:
    """Return True if the kernels support a network.

    It must be a ResNet of bottleneck blocks with folded BatchNorm, widths that are multiples of 64, and few enough
    input channels for a tile of the stem.
    """
    return (
        isinstance(network, ResNet)
        and -(-network.conv1.in_channels // 4) * 4 * network.conv1.kernel_size[0] <= STEM_TILE.depth
        and all(isinstance(block, Bottleneck) and block.conv1.out_channels % 64 == 0 for block in _blocks(network))
        and not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    )


def _blocks(network: ResNet) -> list[Any]:
    return [block for stage in network.stage_modules() for block in stage]
