"""Layers of residual blocks with gradients, for training in bfloat16 with Triton kernels.

The layers of a stage, which all have the same number of channels, run as one operation: two layers per block, preceded
by a single layer if the number of layers is odd. The single layer is the stem, or the second layer of a block that
halves the image size; in the latter case, its shortcut is passed as an argument. With BatchNorm in training mode, a
layer is a convolution that also computes partial statistics, followed by a normalization; the gradient is computed
likewise. In eval mode, BatchNorm is folded into the filters, and a layer is one kernel; attacks use `resident_attack`
instead if it supports the shape.
"""

# mypy: disable-error-code="no-untyped-call,untyped-decorator,misc,no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from smoothcert.kernels.batchnorm import arrive, denormalize, moments_of, normalize, sums_of
from smoothcert.kernels.convolution import convolve, filters_gradient, new_parts
from smoothcert.kernels.operators import first_is_differentiable, operator


def _entering(images: Tensor, left: Tensor, layer: int) -> Tensor:
    """Return the input of layer number `layer`; `left` contains the outputs of all layers but the last."""
    return left[layer - 1] if layer else images


def _added(images: Tensor, left: Tensor, shortcut: Tensor | None, layer: int, layers: int) -> Tensor | None:
    """Return a layer's shortcut: the block's input at the end of a block, `shortcut` for a single layer, or None."""
    if layer < layers % 2:
        return shortcut
    return None if (layer - layers) % 2 == 0 else _entering(images, left, layer - 1)


@operator("smoothcert::training_layers")
def training_layers(
    images: Tensor, shortcut: Tensor | None, weights: Tensor, scales: Tensor, shifts: Tensor, epsilon: float,
    rectified: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Apply layers to images [count, height, width, channels], with BatchNorm in training mode.

    `weights` are [layer, filter, 3, 3, channel]. `rectified` is True if a ReLU follows each layer; it can be False only
    for a single layer without a shortcut. Return the output of the last layer, the outputs of all layers before it,
    the outputs of all convolutions, and statistics [layer, 3, channel]: mean, variance and 1 / sqrt(variance +
    epsilon).
    """
    images, layers = images.contiguous(), len(weights)
    shortcut = None if shortcut is None else shortcut.contiguous()
    weights = weights.to(images.dtype).contiguous()
    left, convolved = images.new_empty((layers - 1, *images.shape)), images.new_empty((layers, *images.shape))
    out, moments = torch.empty_like(images), scales.new_empty((layers, 3, images.shape[3]))
    for layer in range(layers):
        parts, block = new_parts(images)
        convolve(_entering(images, left, layer), weights[layer], out=convolved[layer], parts=parts)
        moments_of(parts, images, block, epsilon, moments[layer])
        added, target = _added(images, left, shortcut, layer, layers), out if layer == layers - 1 else left[layer]
        normalize(convolved[layer], moments[layer], scales[layer], shifts[layer], added, target, rectified)
    return out, left, convolved, moments


@operator("smoothcert::training_layers_gradient")
def training_gradient(
    gradient: Tensor, images: Tensor, out: Tensor, left: Tensor, convolved: Tensor, moments: Tensor, weights: Tensor,
    scales: Tensor, rectified: bool, for_images: bool, for_weights: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of images and weights (if requested), of the shortcut, and of the BatchNorm parameters.

    The last tensor contains the gradients of shifts and scales, [layer, 2, channel].
    """
    images, weights, layers = images.contiguous(), weights.contiguous(), len(weights)
    factors, found = weights.to(images.dtype), torch.empty_like(weights if for_weights else weights[:0])
    sums = moments.new_empty((layers, 2, images.shape[3]))
    shortcut, parts = arrive(gradient.contiguous(), out if rectified else None, convolved[-1], moments[-1])
    arrived = shortcut
    for layer in reversed(range(layers)):
        source, opens = _entering(images, left, layer), (layer - layers) % 2 == 0
        shortcut = shortcut if opens else arrived
        sums_of(parts, sums[layer])
        inner = denormalize(arrived, convolved[layer], moments[layer], scales[layer], sums[layer])
        if for_weights:
            filters_gradient(inner, source, found[layer])
        added = shortcut if opens else None
        if layer:
            parts = new_parts(images)[0]
            arrived = convolve(
                inner, factors[layer], turned=True, added=added, kept=source, parts=parts, normal=convolved[layer - 1],
                moments=moments[layer - 1],
            )  # fmt: skip
        elif for_images:
            arrived = convolve(inner, factors[layer], turned=True, added=added)
    none = images.new_empty(0)
    return arrived if for_images else none, found, shortcut if rectified else none.clone(), sums


@operator("smoothcert::folded_layers")
def folded_layers(
    images: Tensor, shortcut: Tensor | None, weights: Tensor, biases: Tensor, rectified: bool
) -> tuple[Tensor, Tensor]:
    """Apply layers with folded BatchNorm; return the last layer's output, and the outputs of all layers before it."""
    images, weights, layers = images.contiguous(), weights.contiguous(), len(weights)
    shortcut = None if shortcut is None else shortcut.contiguous()
    left, out = images.new_empty((layers - 1, *images.shape)), torch.empty_like(images)
    for layer in range(layers):
        added, target = _added(images, left, shortcut, layer, layers), out if layer == layers - 1 else left[layer]
        source, bias = _entering(images, left, layer), biases[layer]
        convolve(source, weights[layer], bias=bias, added=added, rectified=rectified, out=target)
    return out, left


@operator("smoothcert::folded_layers_gradient")
def folded_gradient(
    gradient: Tensor, images: Tensor, out: Tensor, left: Tensor, weights: Tensor, rectified: bool, for_weights: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of images, of weights and biases (if requested), and of the shortcut."""
    images, weights, layers = images.contiguous(), weights.contiguous(), len(weights)
    found = torch.empty_like(weights if for_weights else weights[:0], dtype=torch.float32)
    biases = found.new_empty(len(found), images.shape[3])
    gradient = torch.ops.aten.threshold_backward(gradient, out, 0) if rectified else gradient
    arrived = shortcut = gradient.contiguous()
    for layer in reversed(range(layers)):
        source, opens = _entering(images, left, layer), (layer - layers) % 2 == 0
        shortcut = shortcut if opens else arrived
        if for_weights:
            filters_gradient(arrived, source, found[layer])
            biases[layer] = arrived.sum(dim=(0, 1, 2), dtype=torch.float32)
        added, kept = shortcut if opens else None, source if layer else None
        arrived = convolve(arrived, weights[layer], turned=True, added=added, kept=kept)
    return arrived, found, biases, shortcut if rectified else images.new_empty(0)


# Shapes and types of the outputs, for the compiler.
@training_layers.register_fake
def _(images: Tensor, shortcut: Any, weights: Tensor, scales: Tensor, *_: Any) -> tuple[Tensor, ...]:
    layers, shape = len(weights), images.shape
    left, convolved = images.new_empty((layers - 1, *shape)), images.new_empty((layers, *shape))
    return images.new_empty(shape), left, convolved, scales.new_empty((layers, 3, shape[3]))


@training_gradient.register_fake
def _(
    gradient: Any, images: Tensor, out: Any, left: Any, convolved: Any, moments: Tensor, weights: Tensor, scales: Any,
    rectified: bool, for_images: bool, for_weights: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    found = weights.new_empty((len(weights) if for_weights else 0, *weights.shape[1:]))
    sums = moments.new_empty((len(weights), 2, images.shape[3]))
    shortcut = images.new_empty(images.shape if rectified else 0)
    return images.new_empty(images.shape if for_images else 0), found, shortcut, sums


@folded_layers.register_fake
def _(images: Tensor, shortcut: Any, weights: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return images.new_empty(images.shape), images.new_empty((len(weights) - 1, *images.shape))


@folded_gradient.register_fake
def _(
    gradient: Any, images: Tensor, out: Any, left: Any, weights: Tensor, rectified: bool, for_weights: bool
) -> tuple[Tensor, ...]:
    found = weights.new_empty((len(weights) if for_weights else 0, *weights.shape[1:]), dtype=torch.float32)
    biases, shortcut = found.new_empty(len(found), images.shape[3]), images.new_empty(images.shape if rectified else 0)
    return images.new_empty(images.shape), found, biases, shortcut


def _where(needed: Sequence[bool], *gradients: Tensor) -> list[Tensor | None]:
    return [gradient if need else None for need, gradient in zip(needed, gradients, strict=False)]


class TrainingLayers(torch.autograd.Function):
    """Differentiable version of `training_layers`, which `torch.compile` can also trace inside attacks."""

    @staticmethod
    def forward(
        images: Tensor, shortcut: Tensor | None, weights: Tensor, scales: Tensor, shifts: Tensor, epsilon: float,
        rectified: bool,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Apply the layers."""
        return training_layers(images, shortcut, weights, scales, shifts, epsilon, rectified)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Save the tensors that the gradient needs."""
        images, _, weights, scales, _, _, ctx.rectified = inputs
        first_is_differentiable(ctx, output)
        ctx.save_for_backward(images, *output, weights, scales)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        """Return the gradients of the arguments of `forward`."""
        needed = ctx.needs_input_grad
        for_images, _, for_weights = needed[:3]
        images, weights, shortcut, sums = training_gradient(
            gradient, *ctx.saved_tensors, ctx.rectified, for_images, for_weights
        )
        return *_where(needed, images, shortcut, weights, sums[:, 1], sums[:, 0]), None, None


class FoldedLayers(torch.autograd.Function):
    """Differentiable version of `folded_layers`, for BatchNorm in eval mode."""

    @staticmethod
    def forward(
        images: Tensor, shortcut: Tensor | None, weights: Tensor, biases: Tensor, rectified: bool
    ) -> tuple[Tensor, Tensor]:
        """Apply the layers."""
        return folded_layers(images, shortcut, weights, biases, rectified)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Save the tensors that the gradient needs."""
        images, _, weights, _, ctx.rectified = inputs
        first_is_differentiable(ctx, output)
        ctx.save_for_backward(images, *output, weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        """Return the gradients of the arguments of `forward`."""
        needed, dtype = ctx.needs_input_grad, ctx.saved_tensors[-1].dtype
        images, weights, biases, shortcut = folded_gradient(
            gradient, *ctx.saved_tensors, ctx.rectified, needed[2] or needed[3]
        )
        return *_where(needed, images, shortcut, weights.to(dtype), biases), None
