"""What the networks here have in common: normalisation, saved with the weights, and convolution with pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.errors import UsageError

_FEW = 4_096  # inputs of a batch that a banded product is faster for, as benchmarks/README.md measures


class Normalize(nn.Module):
    """Subtract the mean and divide by the standard deviation of each channel (or of everything, for one value)."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float] = (0.0,), std: Sequence[float] = (1.0,)) -> None:
        super().__init__()
        listed = hasattr(mean, "__len__") and hasattr(std, "__len__")
        if not listed or len(mean) != len(std) or any(not value > 0 for value in std):
            raise UsageError(f"Expected `mean` and as many `std` > 0, one a channel, but got {mean} and {std}.")
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
    takes one only. Scores are of the type of the images, so that losses are computed in float32 where autocast runs the
    layers in bfloat16, on every device.
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

    def check_shape(self, shape: Sequence[int]) -> None:
        """Refuse images of a shape [channels, height, width] that it does not take."""
        expected = (self.in_channels, *(self.image_size or shape[1:]))
        if len(shape) != 3 or tuple(shape) != expected:
            raise UsageError(f"Expected images of shape {list(expected)}, but got {list(shape)}.")

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of a batch."""
        self.check_shape(x.shape[1:])
        scores: Tensor = self.network(self.normalize(x).contiguous(memory_format=torch.channels_last))
        return scores.to(x.dtype)


def conv_relu_pool(x: Tensor, conv: nn.Module) -> Tensor:
    """Return max_pool2d(relu(conv(x)), 2), for an odd kernel without padding or stride.

    With few channels GPUs are slow at it. There it becomes one matrix product and a maximum: of banded rows for the
    batches of training, which wait for memory, and of blocks for the large ones of voting, which wait for arithmetic.
    """
    if not isinstance(conv, nn.Conv2d):
        scores: Tensor = conv(x)  # a kernel that does it all, put here for voting
        return scores
    if not x.is_cuda:
        return F.max_pool2d(F.relu(conv(x)), 2)
    return banded_conv_relu_pool(x, conv) if len(x) <= _FEW else blocked_conv_relu_pool(x, conv)


def blocked_conv_relu_pool(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """Return what `conv_relu_pool` does, as a product of small patches with the filters.

    Each 2x2 block of pixels is one pixel of four times the channels, and the four places a pool looks at are four
    sets of filters.
    """
    # An odd kernel is padded to even size in the four ways that move it to the four places of a block.
    moved = [F.pad(conv.weight, (dx, 1 - dx, dy, 1 - dy)) for dy in (0, 1) for dx in (0, 1)]
    weight = torch.cat([F.pixel_unshuffle(kernel, 2) for kernel in moved])
    size = weight.shape[-1]
    patches = F.pixel_unshuffle(x, 2).permute(0, 2, 3, 1).unfold(1, size, 1).unfold(2, size, 1)
    count, height, width = patches.shape[:3]
    products = patches.reshape(count * height * width, -1) @ weight.flatten(1).t()
    return _pooled(products.view(count, height, width, 4, -1), conv)


def banded_conv_relu_pool(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """Return what `conv_relu_pool` does, as a product of whole rows of the image with a banded matrix.

    More than half of the matrix is zeros; in return images are copied in whole rows, and no patches are gathered.
    """
    count, _, height, width = x.shape
    reach = conv.kernel_size[0] + 1  # the rows of pixels that a row of pools looks at
    rows, columns = (height - reach) // 2 + 1, (width - reach) // 2 + 1
    pairs = x.permute(0, 2, 3, 1).reshape(count, height // 2, -1)
    strips = pairs.unfold(1, reach // 2, 1).transpose(2, 3).reshape(count * rows, -1)
    where = _taps(reach - 1, width, columns, x.device).to(conv.weight.dtype)
    band = (conv.weight.flatten(2) @ where).view(*conv.weight.shape[:2], reach, width, columns, 4)
    matrix = band.permute(2, 3, 1, 4, 5, 0).reshape(strips.shape[1], -1)
    return _pooled((strips @ matrix).view(count, rows, columns, 4, -1), conv)


def _taps(size: int, width: int, columns: int, device: torch.device) -> Tensor:
    """Return which pixel of a strip each tap of a filter meets, at every column and each of a pool's four places.

    [size * size, (size + 1) * width * columns * 4], ones and zeros.
    """
    tap, place = torch.arange(size, device=device), torch.arange(2, device=device)
    row, column = torch.arange(size + 1, device=device), torch.arange(width, device=device)
    pool = torch.arange(columns, device=device)
    down = row.view(-1, 1) == tap.view(-1, 1, 1) + place  # [tap, row, place]
    across = column.view(-1, 1, 1) == tap.view(-1, 1, 1, 1) + 2 * pool.view(-1, 1) + place  # [tap, column, pool, place]
    both = down.view(size, 1, size + 1, 1, 1, 2, 1) & across.view(1, size, 1, width, columns, 1, 2)
    return both.reshape(size * size, -1)


def _pooled(products: Tensor, conv: nn.Conv2d) -> Tensor:
    """Return the best of the four places [count, rows, columns, place, filter], with the bias, rectified."""
    best = products.amax(dim=3)
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
