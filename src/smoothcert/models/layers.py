"""Modules that wrap networks, to normalize their inputs and to record their architecture and number of classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from smoothcert.errors import UsageError, quote, takes
from smoothcert.statistics.bounds import check_number


class Normalize(nn.Module):
    """Layer that subtracts a mean and divides by a standard deviation: one value per channel, or one for all."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float] = (0.0,), std: Sequence[float] = (1.0,)) -> None:
        super().__init__()
        try:
            means, deviations = (torch.as_tensor(values, dtype=torch.float32).clone() for values in (mean, std))
            fit = means.dim() == 1 and means.shape == deviations.shape and bool((deviations > 0).all())
        except (TypeError, ValueError, OverflowError, RuntimeError):
            fit = False
        if not fit:
            text = f"with `std` > 0, but got {quote(mean)} and {quote(std)}"
            raise UsageError(f"Expected `mean` and `std` to have one value per channel, {text}.")
        self.register_buffer("mean", means)
        self.register_buffer("std", deviations)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize a batch of images per channel, or of vectors per feature."""
        shape = (-1,) + (1,) * (x.dim() - 2)
        return (x - self.mean.view(shape)) / self.std.view(shape)


class NamedModel(nn.Module, ABC):
    """Base class of models that wrap a `network` and record its architecture and number of classes for checkpoints."""

    network: nn.Module

    def __init__(self, architecture: str, num_classes: int) -> None:
        super().__init__()
        self.architecture, self.num_classes = architecture, num_classes

    @abstractmethod
    def check_shape(self, shape: Sequence[int]) -> None:
        """Raise if the network does not accept inputs of this shape."""


class Classifier(NamedModel):
    """A network with its input normalization; it takes images in [0, 1], with or without noise.

    `architecture` is its name in `create_model`; `image_size` is the height and width it requires, or None for any.
    Weights and images are stored channels-last, which is fastest on CPUs and on tensor cores. Scores have the dtype of
    the images, so that losses are computed in float32 even under bfloat16 autocast.
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
        super().__init__(architecture, num_classes)
        self.normalize, self.network = normalize, network
        self.in_channels, self.image_size = in_channels, image_size
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def check_shape(self, shape: Sequence[int]) -> None:
        """Raise if the network does not accept images of shape [channels, height, width]."""
        sides = self.image_size or (shape[1:] if len(shape) == 3 else ("height", "width"))
        if tuple(shape) != (self.in_channels, *sides):
            expected = f"[{self.in_channels}, {sides[0]}, {sides[1]}]"
            raise UsageError(f"Expected images of shape {expected}, but got {list(shape)}.")

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of a batch."""
        self.check_shape(x.shape[1:])
        scores: Tensor = self.network(self.normalize(x).contiguous(memory_format=torch.channels_last))
        return scores.to(x.dtype)


class AdaptedModel(nn.Module):
    """A model that converts inputs in [0, 1] to the range that the wrapped model expects."""

    def __init__(self, model: Callable[[Tensor], Tensor], normalize: Normalize) -> None:
        super().__init__()
        self.model, self.normalize = model, normalize

    def forward(self, x: Tensor) -> Tensor:
        """Convert inputs to the wrapped model's range and return its scores."""
        return self.model(self.normalize(x))


@takes(model=Callable)
def adapt_inputs(
    model: Callable[[Tensor], Tensor],
    *,
    value_range: tuple[float, float] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> AdaptedModel:
    """Wrap a model that expects inputs in another range, or standardized inputs, so that it accepts inputs in [0, 1].

    `sigma` then means the same for every model, since it is measured on the scale [0, 1]. A model for inputs in [-1, 1]
    that was trained with noise of 0.5 on that scale needs sigma = 0.25.

    Args:
        model: A function from a batch of inputs to scores.
        value_range: The range (low, high) of the inputs that the model expects.
        mean: The mean per channel that inputs are standardized with; requires `std`, and cannot be combined with
            `value_range`.
        std: The standard deviation per channel.

    Returns:
        A module that takes inputs in [0, 1].

    Raises:
        UsageError: If neither or both of `value_range` and the pair `mean`, `std` are given, or a value is invalid.

    Example:
        >>> adapt_inputs(lambda x: x, value_range=(-1, 1))(torch.tensor([[0.0, 1.0]]))
        tensor([[-1.,  1.]])
    """
    if value_range is None and mean is not None and std is not None:
        return AdaptedModel(model, Normalize(mean, std))
    if value_range is None or mean is not None or std is not None:
        raise UsageError("Expected either `value_range` or both `mean` and `std`.")
    try:
        low, high = (check_number("value_range", limit) for limit in value_range)
        ordered = low < high
    except (TypeError, ValueError):  # a UsageError is a ValueError, too
        ordered = False
    if not ordered:
        raise UsageError(f"Expected `value_range` to be (low, high) with low < high, but got {quote(value_range)}.")
    return AdaptedModel(model, Normalize((-low / (high - low),), (1 / (high - low),)))
