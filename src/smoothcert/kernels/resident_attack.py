"""Layers of residual blocks of equal width, for attacks: CUDA kernels for the outputs and for the gradients of inputs.

An attack uses BatchNorm in eval mode and needs no gradients for weights. So a stage of a CIFAR ResNet can stay in
shared memory, and its gradient needs only the sign of each ReLU's input. `training_layers` computes the same with
separate kernels for each layer.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,no-any-return"

from __future__ import annotations

import warnings
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from smoothcert.errors import Notice, first_line
from smoothcert.kernels.cuda_source import CudaFunction, compile_source
from smoothcert.kernels.operators import first_is_differentiable, operator
from smoothcert.kernels.resident_stage import StageShape, arrange

SOURCE = Path(__file__).with_suffix(".cu")
# By number of channels. Warps do less work than in voting: a training step passes only a few hundred images at once.
SHAPES = {
    16: StageShape(side=32, images=1, warps=8, tiles=2, lines=8, resident=2, ahead=3),
    32: StageShape(side=16, images=1, warps=4, tiles=2, lines=8, resident=3, ahead=3),
    64: StageShape(side=8, images=2, warps=8, tiles=1, lines=8, resident=2, ahead=3),
}
MOST_DEVIATION = 0.01, 0.1, 0.1  # of outputs and both gradients; rounding to bfloat16 causes a third at most
_usable: bool | None = None


@cache
def _program(channels: int, shape: StageShape, capability: tuple[int, int]) -> bytes:
    return compile_source(SOURCE, shape.constants(channels), capability)


@cache
def attack_function(name: str, channels: int, shape: StageShape, device: int) -> CudaFunction:
    """Compile the kernels for a device, which must be the current device, and return the one with this name."""
    program = _program(channels, shape, torch.cuda.get_device_capability(device))
    return CudaFunction(program, name, 32 * shape.warps, shape.shared_bytes, shape.resident)


def attack_kernels(device: torch.device) -> bool:
    """Return True if the kernels compile for a device and compute correct values; otherwise warn once.

    The check runs once, and its result is cached. It cannot run while `torch.compile` is tracing; if it has not run by
    then, return False.
    """
    global _usable  # torch.compile would trace through functools.cache
    if _usable is None and not torch.compiler.is_compiling():
        try:
            errors = torch.stack([deviations(channels, shape, device) for channels, shape in SHAPES.items()])
            _usable = bool((errors < torch.tensor(MOST_DEVIATION, device="cpu")).all())  # False for NaN
            reason = f"results of their kernel are off by {float(errors.max()):.0%}"
        except torch.OutOfMemoryError:
            return False  # try again in the next pass
        except (OSError, RuntimeError) as failure:
            reason, _usable = f"their kernel failed ({first_line(failure)})", False
        if not _usable:
            warnings.warn(f"Attacks on CIFAR ResNets are slower, since {reason}.", Notice, stacklevel=2)
    return bool(_usable)


def deviations(channels: int, shape: StageShape, device: torch.device) -> Tensor:
    """Return the kernels' relative errors of outputs and both gradients, for layers with random weights."""
    options: dict[str, Any] = {"generator": torch.Generator().manual_seed(0), "device": "cpu"}
    weights, biases = torch.randn(3, channels, 3, 3, channels, **options), torch.randn(3, channels, **options)
    images, shortcut, gradient = torch.randn(3, 3, shape.side, shape.side, channels, **options)
    weights, images, shortcut, gradient = (
        tensor.to(device, torch.bfloat16) for tensor in (weights / (9 * channels) ** 0.5, images, shortcut, gradient)
    )
    biases = biases.to(device)
    ours, kept = run_layers(images, shortcut, weights, biases, shape)
    found = ours, *run_gradient(gradient * (ours > 0), kept, weights, shape)
    with torch.enable_grad():
        x, added = (tensor.permute(0, 3, 1, 2).double().requires_grad_() for tensor in (images, shortcut))
        layers = zip(weights.permute(0, 1, 4, 2, 3).double(), biases.double(), strict=True)
        first, second, third = (partial(F.conv2d, weight=weight, bias=bias, padding=1) for weight, bias in layers)
        block = F.relu(first(x) + added)
        out = F.relu(third(F.relu(second(block))) + block)
        gradients = torch.autograd.grad(out, (x, added), gradient.permute(0, 3, 1, 2).double())
    expected = [tensor.permute(0, 2, 3, 1) for tensor in (out.detach(), *gradients)]
    return torch.stack([torch.dist(a.double(), b) / b.norm() for a, b in zip(found, expected, strict=True)]).cpu()


def fits(images: Tensor, weights: Tensor, biases: Tensor) -> bool:
    """Return True if the kernels support these layers, and no gradients for their weights are needed."""
    shape = SHAPES.get(images.shape[3])
    return (
        shape is not None
        and images.shape[1:3] == (shape.side, shape.side)
        and images.dtype == weights.dtype == torch.bfloat16
        and len(images) > 0
        and weights.shape[1:] == (images.shape[3], 3, 3, images.shape[3])
        and len(weights) % 2 == 1
        and not (weights.requires_grad or biases.requires_grad)
        and attack_kernels(images.device)
    )


@cache
def _order(channels: int, tiles: int, turned: bool, device: torch.device) -> Tensor:
    """Return indices that put weights [filter, y, x, channel] in the kernel's order, for the gradient if `turned`."""
    weight = torch.arange(9 * channels**2).view(channels, 3, 3, channels).permute(0, 3, 1, 2)
    return arrange(weight.transpose(0, 1).flip(2, 3) if turned else weight, tiles).to(device)


def _launch(name: str, images: Tensor, weights: Tensor, shape: StageShape, *arguments: Tensor | int) -> None:
    """Launch a kernel with these arguments, followed by the rearranged weights and the numbers of images and layers."""
    count, _, _, channels = images.shape
    order = _order(channels, shape.tiles, name == "attack_layers_gradient", images.device)
    arranged = weights.flatten(1).index_select(1, order)
    with torch.cuda.device_of(images):
        function = attack_function(name, channels, shape, torch.cuda.current_device())
        function.launch(-(-count // shape.images), *arguments, arranged, count, len(weights))


def _kept_shape(images: Tensor, weights: Tensor, shape: StageShape) -> tuple[int, int, int]:
    """Return the shape of the kept signs: [blocks of images, layers except the last, words of 32 signs]."""
    return -(-len(images) // shape.images), len(weights) - 1, shape.images * images.shape[1:].numel() // 32


def run_layers(
    images: Tensor, shortcut: Tensor | None, weights: Tensor, biases: Tensor, shape: StageShape
) -> tuple[Tensor, Tensor]:
    """Apply an odd number of layers; return their output, and the signs for `run_gradient`.

    `images` and `shortcut` are [count, height, width, channels], `weights` [layer, filter, 3, 3, channel]. The first
    layer adds the shortcut; each pair of layers after it is a residual block.
    """
    images = images.contiguous()
    out = torch.empty_like(images)
    kept = images.new_empty(_kept_shape(images, weights, shape), dtype=torch.int32)
    added = 0 if shortcut is None else shortcut.contiguous()  # 0 is a null pointer
    _launch("attack_layers", images, weights, shape, out, kept, images, added, biases.float().contiguous())
    return out, kept


def run_gradient(gradient: Tensor, kept: Tensor, weights: Tensor, shape: StageShape) -> tuple[Tensor, Tensor]:
    """Return the gradients of images and shortcut, given the gradient of the values before the last ReLU."""
    gradient = gradient.contiguous()
    images, shortcut = torch.empty_like(gradient), torch.empty_like(gradient)
    _launch("attack_layers_gradient", gradient, weights, shape, images, shortcut, kept, gradient)
    return images, shortcut


@operator("smoothcert::attack_layers")
def attack_layers(images: Tensor, shortcut: Tensor | None, weights: Tensor, biases: Tensor) -> tuple[Tensor, Tensor]:
    """Apply layers with `run_layers`, using the `StageShape` for the number of channels of `images`."""
    return run_layers(images, shortcut, weights, biases, SHAPES[images.shape[3]])


@operator("smoothcert::attack_layers_gradient")
def attack_layers_gradient(gradient: Tensor, kept: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Compute gradients with `run_gradient`, using the `StageShape` for the number of channels of `gradient`."""
    return run_gradient(gradient, kept, weights, SHAPES[gradient.shape[3]])


@attack_layers.register_fake
def _(images: Tensor, shortcut: Any, weights: Tensor, biases: Any) -> tuple[Tensor, Tensor]:
    kept = _kept_shape(images, weights, SHAPES[images.shape[3]])
    return images.new_empty(images.shape), images.new_empty(kept, dtype=torch.int32)


@attack_layers_gradient.register_fake
def _(gradient: Tensor, kept: Any, weights: Any) -> tuple[Tensor, Tensor]:
    return gradient.new_empty(gradient.shape), gradient.new_empty(gradient.shape)


class AttackLayers(torch.autograd.Function):
    """Differentiable `attack_layers` that `torch.compile` can trace, even inside attacks."""

    @staticmethod
    def forward(images: Tensor, shortcut: Tensor | None, weights: Tensor, biases: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the layers."""
        return attack_layers(images, shortcut, weights, biases)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Save the tensors that the gradient needs."""
        first_is_differentiable(ctx, output)
        ctx.save_for_backward(*output, inputs[2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        """Return the gradients of `images` and `shortcut` only."""
        out, kept, weights = ctx.saved_tensors
        masked = torch.ops.aten.threshold_backward(gradient, out, 0)
        images, shortcut = attack_layers_gradient(masked, kept, weights)
        return images, shortcut if ctx.needs_input_grad[1] else None, None, None
