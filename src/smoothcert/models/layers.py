"""What the networks here have in common: normalisation, saved with the weights, and convolution with pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.errors import UsageError


class Normalize(nn.Module):
    """Subtract the mean and divide by the standard deviation of each channel (or of everything, for one value)."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float] = (0.0,), std: Sequence[float] = (1.0,)) -> None:
        super().__init__()
        if len(mean) != len(std) or any(not value > 0 for value in std):
            raise UsageError(f"Expected as many `std` > 0 as `mean`, but got mean {mean} and std {std}.")
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise a batch: per channel for images, per feature for vectors."""
        shape = (-1,) + (1,) * (x.dim() - 2)
        return (x - self.mean.view(shape)) / self.std.view(shape)


class Classifier(nn.Module):
    """A network behind its normalisation; takes images in [0, 1], the range in which noise is added.

    `architecture` is the name `create_model` knows it by. Weights and images lie channels-last, which is how
    convolutions run fastest on CPUs and on tensor cores. `image_size` is the one height and width it takes, if it
    takes one only.
    """

    def __init__(
        self,
        normalize: Normalize,
        network: nn.Module,
        architecture: str,
        *,
        num_classes: int,
        in_channels: int,
        image_size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        self.normalize, self.network, self.architecture = normalize, network, architecture
        self.num_classes, self.in_channels, self.image_size = num_classes, in_channels, image_size
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of a batch."""
        expected = (self.in_channels, *(self.image_size or x.shape[2:]))
        if x.dim() != 4 or tuple(x.shape[1:]) != expected:
            raise UsageError(f"Expected images of shape {list(expected)}, but got {list(x.shape[1:])}.")
        scores: Tensor = self.network(self.normalize(x).contiguous(memory_format=torch.channels_last))
        return scores


def conv_relu_pool(x: Tensor, conv: nn.Module) -> Tensor:
    """Return max_pool2d(relu(conv(x)), 2), for an odd kernel without padding or stride.

    With few channels GPUs are slow at it. There, each 2x2 block of pixels becomes one pixel of four times the
    channels, and the four places a pool looks at become four sets of output channels: what was a convolution and a
    pooling is one matrix product and a maximum.
    """
    if not isinstance(conv, nn.Conv2d):
        scores: Tensor = conv(x)  # a kernel that does it all, put here for voting
        return scores
    return blocked_conv_relu_pool(x, conv) if x.is_cuda else F.max_pool2d(F.relu(conv(x)), 2)


def blocked_conv_relu_pool(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """Return what `conv_relu_pool` does, as a matrix product."""
    # An odd kernel is padded to even size in the four ways that move it to the four places of a block.
    moved = [F.pad(conv.weight, (dx, 1 - dx, dy, 1 - dy)) for dy in (0, 1) for dx in (0, 1)]
    weight = torch.cat([F.pixel_unshuffle(kernel, 2) for kernel in moved])
    size = weight.shape[-1]
    patches = F.pixel_unshuffle(x, 2).permute(0, 2, 3, 1).unfold(1, size, 1).unfold(2, size, 1)
    count, height, width = patches.shape[:3]
    products = patches.reshape(count * height * width, -1) @ weight.flatten(1).t()
    best = products.view(count, height, width, 4, -1).amax(dim=3)
    scores = F.relu(best if conv.bias is None else best + conv.bias)
    return scores.permute(0, 3, 1, 2)


class AdaptedModel(nn.Module):
    """Any callable behind a change of input units, so that noise is still added in [0, 1]."""

    def __init__(self, model: Callable[[Tensor], Tensor], normalize: Normalize) -> None:
        super().__init__()
        self.model, self.normalize = model, normalize

    def forward(self, x: Tensor) -> Tensor:
        """Bring inputs to the model's own units and classify them."""
        return self.model(self.normalize(x))


def adapt_inputs(
    model: Callable[[Tensor], Tensor],
    *,
    value_range: tuple[float, float] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> AdaptedModel:
    """Wrap a model that expects inputs in another range, or standardised ones, to take inputs in [0, 1].

    The noise level then has one meaning for every model: sigma is measured on [0, 1]. A model made for [-1, 1]
    that was trained with noise of 0.5 in its own units wants sigma = 0.25.

    >>> adapt_inputs(lambda x: x, value_range=(-1, 1))(torch.tensor([[0.0, 1.0]]))
    tensor([[-1.,  1.]])
    """
    if value_range is None and mean is not None and std is not None:
        return AdaptedModel(model, Normalize(mean, std))
    if value_range is None or mean is not None or std is not None:
        raise UsageError("Expected either `value_range` or both `mean` and `std`.")
    low, high = value_range
    if not high > low:
        raise UsageError(f"Expected `value_range` as (low, high), but got {value_range}.")
    return AdaptedModel(model, Normalize((-low / (high - low),), (1 / (high - low),)))
