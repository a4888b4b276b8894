"""BatchNorm over a mini-batch that is divided among ranks. PyTorch's own `SyncBatchNorm` does not run on CPUs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.distributed.ranks import Ranks

BatchNorm = nn.modules.batchnorm._BatchNorm
"""The base class of BatchNorm layers for inputs of any dimension."""


class SyncedBatchNorm(BatchNorm):
    """BatchNorm with training statistics over the inputs of all ranks, for inputs [batch, channels, ...].

    In eval mode, and in training with `together` set to False, it acts as ordinary BatchNorm. It shares weights and
    running statistics with the layer that it replaces.
    """

    def __init__(self, norm: BatchNorm, ranks: Ranks) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        self._parameters, self._buffers = norm._parameters, norm._buffers  # shared: an optimizer may refer to them
        self.ranks, self.together = ranks, True

    def forward(self, input: Tensor) -> Tensor:
        """Normalize the inputs: in training by statistics over all ranks, otherwise like ordinary BatchNorm."""
        if not (self.training and self.together):
            return super().forward(input)
        mean, variance, count = _statistics(input.to(torch.promote_types(input.dtype, torch.float32)), self.ranks)
        self._track(mean, variance * (count / (count - 1)))
        scale = (variance + self.eps).rsqrt()
        if self.weight is not None:
            scale = self.weight * scale
        normalized = (input - _per_channel(mean, input)) * _per_channel(scale, input)
        if self.bias is not None:
            normalized = normalized + _per_channel(self.bias, input)
        return normalized.to(input.dtype)

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor) -> None:
        """Update the running statistics, if there are any. If `momentum` is None, they are averages over all steps."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        weight = self.num_batches_tracked.to(mean.dtype).reciprocal() if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, weight)
        self.running_var.lerp_(variance, weight)

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept inputs of any dimension."""


def sync_batchnorm(model: nn.Module, ranks: Ranks) -> list[SyncedBatchNorm]:
    """Replace a network's BatchNorm layers with synchronized ones, and return the new layers.

    Subclasses of PyTorch's BatchNorm layers are not replaced, because they may compute something else.
    """
    replaced: dict[int, SyncedBatchNorm] = {}  # by id of the replaced layer, which may occur several times
    for module in list(model.modules()):
        for name, child in list(module._modules.items()):
            if type(child) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
                assert isinstance(child, BatchNorm)
                setattr(module, name, replaced.setdefault(id(child), SyncedBatchNorm(child, ranks)))
    return list(replaced.values())


def _statistics(x: Tensor, ranks: Ranks) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean and biased variance of each channel over all ranks, and the number of values per channel.

    Combines the ranks' means and variances as in Chan, Golub and LeVeque (1983), which avoids cancellation. Each rank
    fills its own row of a table, so that one sum over the ranks gives every rank the whole table.
    """
    variance, mean = torch.var_mean(x, dim=[0, *range(2, x.dim())], correction=0)
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


def _per_channel(values: Tensor, x: Tensor) -> Tensor:
    return values.view(1, -1, *[1] * (x.dim() - 2))
