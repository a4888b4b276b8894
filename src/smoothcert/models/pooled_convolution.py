"""Convolution, ReLU and max pooling of LeNet as one matrix product, which GPUs compute faster than three layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_MAX_BANDED_BATCH = 4_096  # the banded matrix is faster up to this batch size, see benchmarks/README.md


def conv_relu_pool(x: Tensor, conv: nn.Module) -> Tensor:
    """Return max_pool2d(relu(conv(x)), 2) for a convolution with an odd kernel size, no padding and stride 1.

    GPUs are slow at convolutions with few channels, so on a GPU the result is computed as a matrix product and a
    maximum. Batches of training size, which are bound by memory bandwidth, use `banded_conv_relu_pool`; the larger
    batches of voting, which are bound by arithmetic, use `blocked_conv_relu_pool`.
    """
    if not isinstance(conv, nn.Conv2d):
        pooled: Tensor = conv(x)  # deployment has replaced the convolution with a fused kernel
        return pooled
    if not x.is_cuda:
        # ReLU after pooling gives the same numbers and gradients as ReLU before pooling, with a quarter of the work.
        return F.relu(_max_pool(conv(x)), inplace=True)
    return banded_conv_relu_pool(x, conv) if len(x) <= _MAX_BANDED_BATCH else blocked_conv_relu_pool(x, conv)


def _max_pool(x: Tensor) -> Tensor:
    """Return max_pool2d(x, 2) on a CPU, computed in a much faster way if no gradients are needed.

    The gradients would differ at ties: max_pool2d passes the gradient to only one of the equal values.
    """
    if torch.is_grad_enabled() and x.requires_grad:
        return F.max_pool2d(x, 2)
    x = x[..., : x.shape[-2] // 2 * 2, : x.shape[-1] // 2 * 2]
    across = torch.maximum(x[..., ::2], x[..., 1::2])
    return torch.maximum(across[..., ::2, :], across[..., 1::2, :])


def blocked_conv_relu_pool(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """Compute `conv_relu_pool` as a matrix product of small patches and the filters.

    Each 2x2 block of pixels becomes one pixel with four times the channels; the four positions that a pooling window
    covers become four sets of filters.
    """
    # Padding an odd kernel to even size in four ways moves it to the four positions of a block.
    moved = [F.pad(conv.weight, (dx, 1 - dx, dy, 1 - dy)) for dy in (0, 1) for dx in (0, 1)]
    weight = torch.cat([F.pixel_unshuffle(kernel, 2) for kernel in moved])
    size = weight.shape[-1]
    patches = F.pixel_unshuffle(x, 2).permute(0, 2, 3, 1).unfold(1, size, 1).unfold(2, size, 1)
    count, height, width = patches.shape[:3]
    products = patches.reshape(count * height * width, -1) @ weight.flatten(1).t()
    return _pooled(products.view(count, height, width, 4, -1), conv)


def banded_conv_relu_pool(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """Compute `conv_relu_pool` by multiplying whole image rows by a banded matrix.

    More than half of the matrix is zero, but copying whole rows takes less memory bandwidth than gathering patches.
    """
    count, _, height, width = x.shape
    reach = conv.kernel_size[0] + 1  # rows of pixels that a row of pooling windows depends on
    rows, columns = (height - reach) // 2 + 1, (width - reach) // 2 + 1
    pairs = x.permute(0, 2, 3, 1).reshape(count, height // 2, -1)
    strips = pairs.unfold(1, reach // 2, 1).transpose(2, 3).reshape(count * rows, -1)
    where = _taps(reach - 1, width, columns, x.device).to(conv.weight.dtype)
    band = (conv.weight.flatten(2) @ where).view(*conv.weight.shape[:2], reach, width, columns, 4)
    matrix = band.permute(2, 3, 1, 4, 5, 0).reshape(strips.shape[1], -1)
    return _pooled((strips @ matrix).view(count, rows, columns, 4, -1), conv)


def _taps(size: int, width: int, columns: int, device: torch.device) -> Tensor:
    """Return a mask of the pixels that each filter tap multiplies in a strip of `size` + 1 image rows.

    The mask has one entry for each pixel, output column and position in a pooling window; its shape is
    [size * size, (size + 1) * width * columns * 4].
    """
    tap, place = torch.arange(size, device=device), torch.arange(2, device=device)
    row, column = torch.arange(size + 1, device=device), torch.arange(width, device=device)
    pool = torch.arange(columns, device=device)
    down = row.view(-1, 1) == tap.view(-1, 1, 1) + place  # [tap, row, place]
    across = column.view(-1, 1, 1) == tap.view(-1, 1, 1, 1) + 2 * pool.view(-1, 1) + place  # [tap, column, pool, place]
    both = down.view(size, 1, size + 1, 1, 1, 2, 1) & across.view(1, size, 1, width, columns, 1, 2)
    return both.reshape(size * size, -1)


def _pooled(products: Tensor, conv: nn.Conv2d) -> Tensor:
    """Reduce `products` [count, rows, columns, positions, filters] to the maximum over positions; add bias and ReLU."""
    largest = products.amax(dim=3)
    return F.relu(largest if conv.bias is None else largest + conv.bias).permute(0, 3, 1, 2)
