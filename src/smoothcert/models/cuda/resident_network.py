"""CIFAR ResNets on our CUDA kernel, which computes a whole stage at once, for voting in bfloat16.

The weights of convolutions are rounded to bfloat16, and BatchNorm is applied to the convolutions' float32 sums. Folding
BatchNorm into the weights would scale them before they are rounded.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import warnings
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.errors import Notice, first_line
from smoothcert.kernels.resident_stage import (
    SHAPES,
    STEM_CHANNELS,
    arrange,
    arrange_norm,
    compile_stages,
    resident_stage,
)
from smoothcert.models.resnet import BasicBlock, ResNet


class ResidentStage(nn.Module):
    """A stage of basic blocks in eval mode, with weights in the layout of the kernel.

    The first stage begins with `stem`, the network's first convolution and its BatchNorm, for images that have not been
    divided by `std`. In other stages, the first block halves the image size.
    """

    weights: Tensor
    affine: Tensor

    def __init__(self, blocks: Any, stem: tuple[Any, Any] | None = None, std: Tensor | None = None) -> None:
        super().__init__()
        layers = [pair for block in blocks for pair in ((block.conv1, block.bn1), (block.conv2, block.bn2))]
        layers.insert(*((1, blocks[0].downsample) if stem is None else (0, stem)))
        with torch.no_grad():
            weights = [conv.weight for conv, _ in layers]
            affine = torch.stack([arrange_norm(norm) for _, norm in layers])
            if std is not None:
                std = std.to(weights[0]).expand(weights[0].shape[1])
                # If `std` is the same for all channels, the factors std[0] / std are 1 and leave the weights unchanged.
                weights[0] = F.pad(weights[0] * (std[0] / std).view(-1, 1, 1), (0, 0, 0, 0, 0, 16 - len(std)))
                affine[0, 0] /= std[0]
            tiles = SHAPES[affine.shape[2]].tiles
            self.register_buffer("weights", torch.cat([arrange(weight, tiles) for weight in weights]).bfloat16())
            self.register_buffer("affine", affine)

    def forward(self, images: Tensor) -> Tensor:
        """Apply the stage to images [count, height, width, channels]."""
        return resident_stage(images, self.weights, self.affine)


def has_kernels(network: nn.Module) -> TypeGuard[ResNet]:
    """Return True if the kernel supports a network: a CIFAR ResNet with BatchNorm and widths 16, 32 and 64."""
    if not isinstance(network, ResNet) or not isinstance(network.pool, nn.Identity):
        return False
    stages = network.stage_modules()
    convs = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    return (
        all(isinstance(block, BasicBlock) for stage in stages for block in stage)
        and len(convs) == len(norms)
        and all(conv.bias is None for conv in convs)
        and all(norm.affine and norm.track_running_stats for norm in norms)
        and network.conv1.in_channels <= STEM_CHANNELS
        and [stage[0].conv2.out_channels for stage in stages] == list(SHAPES)
    )


def kernels_compile(device: torch.device) -> bool:
    """Return True if the kernel can be compiled for a device; otherwise warn that voting is slow."""
    try:
        compile_stages(device)
    except (OSError, RuntimeError) as error:
        text = f"CIFAR ResNets vote several times slower, since their kernel cannot be compiled ({first_line(error)})."
        warnings.warn(text, Notice, stacklevel=2)
        return False
    return True


class ResidentNetwork(nn.Module):
    """A ResNet that runs on our kernel.

    For images that are not 32x32, it runs `folded`, the same network with BatchNorm folded into its convolutions. Both
    expect inputs that have not been divided by `std`; their first layers account for the division.
    """

    def __init__(self, network: ResNet, std: Tensor, folded: nn.Module) -> None:
        super().__init__()
        self.folded = folded
        first, *others = network.stage_modules()
        stem = ResidentStage(first, (network.conv1, network.bn1), std)
        self.stages = nn.Sequential(stem, *map(ResidentStage, others))
        self.fc = folded.get_submodule("fc")

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of a batch [count, channels, height, width]."""
        if x.shape[2:] != (32, 32):
            return self.folded(x)
        return self.fc(self.stages(x.permute(0, 2, 3, 1)).mean(dim=(1, 2)))
