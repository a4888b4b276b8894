"""The public gradient of the smoothed loss, compared with finite differences."""

import pytest
import torch
from torch import nn

import smoothcert
from smoothcert.errors import UsageError


@pytest.fixture
def smoothed():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 4)).double()
    return smoothcert.SmoothedClassifier(network, sigma=0.5)


def smoothed_loss(smoothed, x, classes, noise):
    probabilities = smoothed.model.eval()((x + 0.5 * noise).flatten(0, 1)).softmax(-1).view(len(noise), len(x), -1)
    return -probabilities.mean(0).gather(1, classes[:, None]).log().squeeze(1)


def test_it_is_the_slope_of_the_smoothed_loss(smoothed, monkeypatch):
    x, classes = torch.rand(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0])
    noise = torch.randn(8, 5, 3, dtype=torch.float64)
    monkeypatch.setattr("smoothcert.certification.attack.normal", lambda *_, **__: noise)
    slope = smoothcert.smoothed_gradient(smoothed, x, classes, num_noises=8)
    for value in range(3):
        moved = torch.zeros_like(x)
        moved[:, value] = 1e-5
        ahead, behind = (smoothed_loss(smoothed, x + sign * moved, classes, noise) for sign in (1, -1))
        torch.testing.assert_close(slope[:, value], (ahead - behind) / 2e-5, rtol=1e-6, atol=1e-8)


def test_the_network_is_left_as_it_was(smoothed):
    smoothed.model.train()
    before = {name: value.clone() for name, value in smoothed.model.state_dict().items()}
    first, second = (
        smoothcert.smoothed_gradient(smoothed, torch.rand(2, 3).double() * 0 + 0.5, torch.tensor([0, 1]))
        for _ in range(2)
    )
    assert torch.equal(first, second)
    assert smoothed.model.training
    assert all(weight.requires_grad and weight.grad is None for weight in smoothed.model.parameters())
    for name, value in smoothed.model.state_dict().items():
        assert torch.equal(value, before[name])


def test_wrong_arguments(smoothed):
    with pytest.raises(UsageError, match=r"integers of shape \[2\], but got torch.int64 of shape \[1\]"):
        smoothcert.smoothed_gradient(smoothed, torch.rand(2, 3).double(), torch.tensor([0]))
    function = smoothcert.SmoothedClassifier(lambda x: x, sigma=0.5, num_classes=3)
    with pytest.raises(UsageError, match="a module with Gaussian noise"):
        smoothcert.smoothed_gradient(function, torch.rand(2, 3), torch.tensor([0, 1]))
