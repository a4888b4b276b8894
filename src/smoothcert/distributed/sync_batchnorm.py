"""BatchNorm over a mini-batch that is divided among ranks. PyTorch's own `SyncBatchNorm` does not run on CPUs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.distributed.ranks import Ranks


class SyncedBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm with training statistics over the images of all ranks.

    With `together` off, and always in eval mode, it is ordinary BatchNorm. It shares weights and statistics with the
    layer that it replaces.
    """

    def __init__(self, norm: nn.BatchNorm2d, ranks: Ranks) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum)
        self._parameters, self._buffers = norm._parameters, norm._buffers  # shared: an optimizer may hold them
        self.ranks, self.together = ranks, True

    def forward(self, input: Tensor) -> Tensor:
        """Normalize by the statistics over all ranks."""
        if not (self.training and self.together):
            return super().forward(input)
        mean, variance, count = _statistics(input.to(self.weight.dtype), self.ranks)
        with torch.no_grad():
            momentum = self.momentum or 0.0
            assert self.running_mean is not None
            assert self.running_var is not None
            assert self.num_batches_tracked is not None
            self.running_mean.lerp_(mean, momentum)
            self.running_var.lerp_(variance * (count / (count - 1)), momentum)
            self.num_batches_tracked.add_(1)
        scale = self.weight * (variance + self.eps).rsqrt()
        normalized = (input - _per_channel(mean)) * _per_channel(scale) + _per_channel(self.bias)
        return normalized.to(input.dtype)


def sync_batchnorm(model: nn.Module, ranks: Ranks) -> list[SyncedBatchNorm2d]:
    """Replace a network's BatchNorm layers with synchronized ones, and return the new layers."""
    replaced = []
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.BatchNorm2d):
                replaced.append(SyncedBatchNorm2d(child, ranks))
                setattr(module, name, replaced[-1])
    return replaced


def _statistics(x: Tensor, ranks: Ranks) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, variance (over the count) and count of each channel over all ranks.

    Combines the ranks' means and variances as in Chan, Golub and LeVeque (1983), which avoids cancellation. Each rank
    fills its own row of a table, so that one sum over the ranks gives the whole table to all.
    """
    variance, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
    count = x.new_full((1,), x.numel() / x.shape[1])
    mine = torch.cat((mean, variance, count))
    above, below = ranks.rank, ranks.size - ranks.rank - 1
    table: Tensor = _SumOverRanks.apply(F.pad(mine.unsqueeze(0), (0, 0, above, below)))  # type: ignore[no-untyped-call]
    channels = len(mean)
    means, variances, counts = torch.split(table, [channels, channels, 1], dim=1)
    total = counts.sum()
    share = counts / total
    overall = (share * means).sum(dim=0)
    return overall, (share * (variances + (means - overall).square())).sum(dim=0), total


class _SumOverRanks(torch.autograd.Function):
    """Sum of a tensor over all ranks; its gradient is the sum of the ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _all_reduced(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _all_reduced(gradient)


def _all_reduced(x: Tensor) -> Tensor:
    """Return the sum over the ranks, in a form that torch.compile can trace."""
    import torch.distributed as dist
    from torch.distributed import _functional_collectives as functional

    everyone: Any = dist.group.WORLD
    summed: Tensor = functional.wait_tensor(functional.all_reduce(x.contiguous(), "sum", everyone))  # type: ignore[no-untyped-call]
    return summed


def _per_channel(values: Tensor) -> Tensor:
    return values.view(1, -1, 1, 1)
