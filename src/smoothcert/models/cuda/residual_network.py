"""CIFAR ResNets on our Triton kernel for a whole stage, for voting in bfloat16."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.kernels.residual_stage import TILES, residual_stage
from smoothcert.models.resnet import BasicBlock, ResNet

STEM_CHANNELS = 4  # images are padded to 4 channels, so that a patch of the first convolution has 64 values


def arrange(kernels: list[Tensor]) -> Tensor:
    """Return a list of equally sized filter banks as a matrix [line, pixel, channel of a patch; bank, filter]."""
    return torch.stack(kernels).permute(3, 4, 2, 0, 1).flatten(3).flatten(0, 2).contiguous()


def arrange_places(weight: Tensor, step: int) -> Tensor:
    """Return 3x3 filters as a matrix, at all positions in a block of `step` lines by two pixels."""
    places = [(dy, dx) for dy in range(step) for dx in (0, 1)]
    return arrange([F.pad(weight, (dx, 1 - dx, dy, step - 1 - dy)) for dy, dx in places])


class ResidualStage(nn.Module):
    """A stage of basic blocks without BatchNorm, with weights in the layout of the kernel.

    The first stage begins with `stem`, the network's first convolution; in others, the first block halves the image.
    """

    entry: Tensor
    entry_bias: Tensor
    weights: Tensor
    biases: Tensor

    def __init__(self, blocks: Any, stem: Any) -> None:
        super().__init__()
        convs = [conv for block in blocks for conv in (block.conv1, block.conv2)]
        self.channels = convs[-1].out_channels
        step = TILES[self.channels].step
        with torch.no_grad():
            if stem is None:
                halved, projected = convs.pop(0), blocks[0].downsample[0]
                # Both filters are centered on the second pixel of the second line.
                entry = arrange([F.pad(projected.weight, (1, 2, 1, 1)), F.pad(halved.weight, (0, 1))])
                entry_bias = torch.cat([projected.bias, halved.bias])
            else:
                padded = F.pad(stem.weight, (0, 0, 0, 0, 0, STEM_CHANNELS - stem.in_channels))
                entry, entry_bias = arrange_places(padded, step), stem.bias.repeat(2 * step)
            self.register_buffer("entry", entry)
            self.register_buffer("entry_bias", entry_bias.float())
            self.register_buffer("weights", torch.stack([arrange_places(conv.weight, step) for conv in convs]))
            self.register_buffer("biases", torch.stack([conv.bias.float().repeat(2 * step) for conv in convs]))

    def forward(self, images: Tensor) -> Tensor:
        """Apply the stage to images [count, height, width, channels]."""
        return residual_stage(images, self.entry, self.entry_bias, self.weights, self.biases, self.channels)


def has_kernels(network: nn.Module) -> TypeGuard[ResNet]:
    """Return True if the kernel supports a network: a CIFAR ResNet with folded BatchNorm and 16, 32 and 64 channels."""
    if not isinstance(network, ResNet) or not isinstance(network.pool, nn.Identity):
        return False
    stages = network.stage_modules()
    return (
        all(isinstance(block, BasicBlock) for stage in stages for block in stage)
        and not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
        and network.conv1.in_channels <= STEM_CHANNELS
        and [stage[0].conv2.out_channels for stage in stages] == list(TILES)
    )


class ResidualNetwork(nn.Module):
    """A ResNet that runs on our Triton kernel, except for images whose sides are odd in some stage."""

    def __init__(self, network: ResNet) -> None:
        super().__init__()
        self.network = network
        first, *others = network.stage_modules()
        self.stages = nn.Sequential(
            ResidualStage(first, network.conv1), *(ResidualStage(stage, None) for stage in others)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of a batch [count, channels, height, width]."""
        if any(side % 2 ** len(self.stages) for side in x.shape[2:]):
            return self.network(x)
        images = F.pad(x.permute(0, 2, 3, 1), (0, STEM_CHANNELS - x.shape[1]))
        return self.network.fc(self.stages(images).mean(dim=(1, 2)))
