"""CIFAR ResNets on our Triton kernels for training in bfloat16."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.kernels import resident_attack
from smoothcert.kernels.training_layers import FoldedLayers, TrainingLayers
from smoothcert.models.resnet import BasicBlock, ResNet

Layer = tuple[nn.Conv2d, nn.BatchNorm2d]
_WIDTHS = 16, 32, 64


def has_kernels(network: ResNet, x: Tensor) -> bool:
    """Return True if the kernels can train a network on images x.

    The network must be a CIFAR ResNet with plain BatchNorm and without hooks, since these would not be called. The
    sides of the images must be even in each stage, and 32-bit integers must be able to index their values.
    """
    stages, modules = network.stage_modules(), list(network.modules())
    convs = [module for module in modules if isinstance(module, nn.Conv2d)]
    norms = [module for module in modules if isinstance(module, nn.BatchNorm2d)]
    widest = len(x) * x.shape[2] * x.shape[3] * network.conv1.out_channels
    return (
        isinstance(network.pool, nn.Identity)
        and all(type(block) is BasicBlock for stage in stages for block in stage)
        and all(stage[0].conv2.out_channels in _WIDTHS for stage in stages)
        and network.conv1.in_channels <= network.conv1.out_channels
        and not any(side % 2 ** len(stages) for side in x.shape[2:])
        and widest < 2**31 - 2**12  # leaves room for the values of a tile
        and not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in modules)
        and all(type(conv) is nn.Conv2d and conv.bias is None for conv in convs)
        and all(type(norm) is nn.BatchNorm2d and norm.affine and norm.track_running_stats for norm in norms)
        and len({(norm.eps, norm.momentum, norm.training) for norm in norms}) == 1
        and norms[0].momentum is not None
        and all(parameter.dtype == torch.float32 for parameter in network.parameters())
    )


def run_stages(network: ResNet, x: Tensor) -> Tensor:
    """Apply the stem and all stages to images [count, channels, height, width], in the dtype of autocast."""
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    for number, stage in enumerate(network.stage_modules()):
        layers = [layer for block in stage for layer in ((block.conv1, block.bn1), (block.conv2, block.bn2))]
        if number == 0:
            x = run_layers(x, [(network.conv1, network.bn1), *layers])
        else:
            x, shortcut = halve(x, layers[0], stage[0].downsample)
            x = run_layers(x, layers[1:], shortcut)
    return x


def run_layers(x: Tensor, layers: list[Layer], shortcut: Tensor | None = None) -> Tensor:
    """Apply the two layers of each block; if the number of layers is odd, the first layer precedes the blocks."""
    convs, norms = [conv for conv, _ in layers], [norm for _, norm in layers]
    width = convs[0].out_channels
    shortcut = None if shortcut is None else shortcut.permute(0, 2, 3, 1)
    weights = torch.stack([_widened(conv.weight.permute(0, 2, 3, 1), width) for conv in convs])
    output = _apply(_widened(x.permute(0, 2, 3, 1), width), shortcut, weights, norms, rectified=True)
    return output.permute(0, 3, 1, 2)


def halve(x: Tensor, layer: Layer, projection: Any) -> tuple[Tensor, Tensor]:
    """Halve the image size: return the output of a layer and the output of the shortcut's projection.

    Every 2x2 block of pixels becomes one pixel with four times the channels, so that the layer and the projection
    become one layer of stride 1. The first row of a 3x3 filter of stride 2 covers the second row of the 2x2 block
    above; the other two rows cover the 2x2 block itself.
    """
    count, channels, height, width = x.shape
    pixels = x.permute(0, 2, 3, 1).reshape(count, height // 2, 2, width // 2, 2, channels).transpose(2, 3)
    both = torch.cat([layer[0].weight, F.pad(projection[0].weight, (1, 1, 1, 1))])
    places = F.pad(both, (1, 0, 1, 0)).reshape(len(both), channels, 2, 2, 2, 2).permute(0, 2, 4, 3, 5, 1)
    weights = F.pad(places.flatten(3), (0, 0, 0, 1, 0, 1)).unsqueeze(0)
    output = _apply(pixels.flatten(3), None, weights, [layer[1], projection[1]], rectified=False)
    halved, projected = output.permute(0, 3, 1, 2).chunk(2, dim=1)
    return F.relu(halved), projected


def _apply(
    images: Tensor, shortcut: Tensor | None, weights: Tensor, norms: list[nn.BatchNorm2d], *, rectified: bool
) -> Tensor:
    """Apply layers with `weights` [layer, filter, 3, 3, channel], in the dtype of the images.

    In training mode, BatchNorm updates its running statistics. The BatchNorm of a layer may consist of several modules.
    """
    epsilon, shape = norms[0].eps, weights.shape[:2]
    scales, shifts = (
        torch.cat([norm.get_parameter(name) for norm in norms]).view(shape) for name in ("weight", "bias")
    )
    output: Tensor
    if norms[0].training:
        output, _, _, moments = TrainingLayers.apply(images, shortcut, weights, scales, shifts, epsilon, rectified)
        _track(norms, moments.detach(), images.numel() // images.shape[3])
    else:
        means, variances = (
            torch.cat([norm.get_buffer(f"running_{name}") for norm in norms]).view(shape) for name in ("mean", "var")
        )
        factors = scales * (variances + epsilon).rsqrt()
        folded = (weights * factors[:, :, None, None, None]).to(images.dtype)
        biases = shifts - means * factors
        if rectified and resident_attack.fits(images, folded, biases):
            output, _ = resident_attack.AttackLayers.apply(images, shortcut, folded, biases)
        else:
            output, _ = FoldedLayers.apply(images, shortcut, folded, biases, rectified)
    return output


def _widened(values: Tensor, width: int) -> Tensor:
    """Pad images or filters with zeros to `width` channels, so that the stem has the shape of the other layers."""
    missing = width - values.shape[-1]
    return F.pad(values, (0, missing)) if missing else values


@torch.no_grad()
def _track(norms: list[nn.BatchNorm2d], moments: Tensor, count: int) -> None:
    """Update the running statistics of all layers at once."""
    momentum: Any = norms[0].momentum
    for name, values in (("mean", moments[:, 0]), ("var", moments[:, 1] * (count / (count - 1)))):
        torch._foreach_lerp_(
            [norm.get_buffer(f"running_{name}") for norm in norms],
            list(values.reshape(len(norms), -1).unbind()),
            momentum,
        )
    torch._foreach_add_([norm.get_buffer("num_batches_tracked") for norm in norms], 1)
