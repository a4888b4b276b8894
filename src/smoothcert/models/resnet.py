"""Residual networks (He et al., 2016): the CIFAR family of depth 6n + 2, and ResNet-50 for ImageNet.

Layers are named as in published checkpoints.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.kernels import network_kernels


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


def _projection(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv(inputs, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = _conv(width, width, 3), nn.BatchNorm2d(width)
        self.downsample = _projection(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        shortcut = x if self.downsample is None else self.downsample(x)
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + shortcut)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with a shortcut; `stride` is the stride of the 3x3 convolution."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1, self.bn1 = _conv(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = _conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = _conv(width, outputs, 1), nn.BatchNorm2d(outputs)
        self.downsample = _projection(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        shortcut = x if self.downsample is None else self.downsample(x)
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(out)))
        return F.relu(self.bn3(self.conv3(out)) + shortcut)


class ResNet(nn.Module):
    """A stem, stages of residual blocks, mean pooling and a linear layer.

    `depths` is the number of blocks per stage, and `width` the number of channels after the stem. Every stage except
    the first halves the height and width of the feature maps and doubles the number of channels.
    """

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        depths: tuple[int, ...],
        width: int,
        *,
        small_images: bool,
        num_classes: int,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        stem = _conv(in_channels, width, 3)  # created for ResNet-50, too: a seed must keep giving the same weights
        self.conv1 = stem if small_images else _conv(in_channels, width, 7, 2)
        self.bn1 = nn.BatchNorm2d(width)
        self.pool = nn.Identity() if small_images else nn.MaxPool2d(3, stride=2, padding=1)
        channels, self.stages = width, len(depths)
        for stage, depth in enumerate(depths):
            blocks = []
            for position in range(depth):
                stride = 2 if stage > 0 and position == 0 else 1
                blocks.append(block(channels, width << stage, stride))
                channels = (width << stage) * block.expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of a batch."""
        scores: Tensor = self.fc(self._features(x).mean(dim=(2, 3)))
        return scores

    def stage_modules(self) -> list[Any]:
        """Return the stages, each a sequence of blocks."""
        return [self.get_submodule(f"layer{stage + 1}") for stage in range(self.stages)]

    def _features(self, x: Tensor) -> Tensor:
        if _uses_training_kernels(x):
            from smoothcert.models.cuda import training_network as kernels

            if kernels.has_kernels(self, x):
                return kernels.run_stages(self, x)
        x = self.pool(F.relu(self.bn1(self.conv1(x))))
        for stage in self.stage_modules():
            x = stage(x)
        return x


def _uses_training_kernels(x: Tensor) -> bool:
    """Return True for bfloat16 training on CUDA, where the package's kernels speed up layers with few channels."""
    return (
        torch.is_grad_enabled()
        and x.is_cuda
        and torch.is_autocast_enabled("cuda")
        and torch.get_autocast_dtype("cuda") == torch.bfloat16
        and network_kernels()
    )


def cifar_resnet(depth: int, num_classes: int = 10, in_channels: int = 3) -> ResNet:
    """Return the CIFAR ResNet of depth 6n + 2: three stages of n basic blocks with 16, 32 and 64 channels."""
    blocks = (depth - 2) // 6
    return ResNet(BasicBlock, (blocks,) * 3, 16, small_images=True, num_classes=num_classes, in_channels=in_channels)


def resnet50(num_classes: int = 1000, in_channels: int = 3) -> ResNet:
    """Return ResNet-50: stages of 3, 4, 6 and 3 bottlenecks, for 224x224 images."""
    return ResNet(Bottleneck, (3, 4, 6, 3), 64, small_images=False, num_classes=num_classes, in_channels=in_channels)
