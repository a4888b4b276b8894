"""Synchronized BatchNorm against PyTorch's layers: inputs of any dimension, on one rank."""

import copy

import pytest
import torch
from torch import nn

from smoothcert.distributed import sync_batchnorm as module
from smoothcert.distributed.ranks import Ranks
from smoothcert.distributed.sync_batchnorm import SyncedBatchNorm, sync_batchnorm

SHAPES = {"1d": (nn.BatchNorm1d, (6, 3)), "1d of sequences": (nn.BatchNorm1d, (6, 3, 5)),
          "2d": (nn.BatchNorm2d, (6, 3, 4, 5)), "3d": (nn.BatchNorm3d, (6, 3, 2, 3, 4))}  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}])
@pytest.mark.parametrize("kind", SHAPES)
def test_it_computes_what_the_layer_it_replaces_computes(kind, options, monkeypatch):
    monkeypatch.setattr(module, "_all_reduced", lambda x: x)  # the sum over one rank
    layer, shape = SHAPES[kind]
    plain = nn.Sequential(layer(3, **options)).double().train()
    synced = copy.deepcopy(plain)
    (replaced,) = sync_batchnorm(synced, Ranks())
    assert isinstance(replaced, SyncedBatchNorm)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        x = 5 + 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
        weights = torch.randn(shape, generator=generator, dtype=torch.float64)
        slopes = []
        for network in (plain, synced):
            at = x.clone().requires_grad_()
            slopes.append((network(at), *torch.autograd.grad((network(at) * weights).sum(), at)))
        for expected, found in zip(*slopes, strict=True):
            torch.testing.assert_close(found, expected)
    assert plain.state_dict().keys() == synced.state_dict().keys()
    for name, expected in plain.state_dict().items():
        torch.testing.assert_close(synced.state_dict()[name], expected)
    torch.testing.assert_close(synced.eval()(x), plain.eval()(x))
