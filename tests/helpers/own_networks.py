"""Networks, data and a method that are not the package's, and a child process that trains them."""

import os
import sys
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

import smoothcert


class ConvNet(nn.Module):
    """Convolutions with BatchNorm, GELU and dropout, for images of 8x8 pixels."""

    def __init__(self, num_classes=3):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.GELU(), nn.Dropout(0.2), nn.AvgPool2d(4)
        )
        self.head = nn.Linear(24, num_classes)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


class Mlp(nn.Module):
    """An MLP on vectors with BatchNorm1d and tied weights."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.norm, self.head = nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(F.relu(self.second(F.relu(self.norm(self.first(x))))))


class TrackingMlp(Mlp):
    """An MLP with a buffer that changes with every step, but that PyTorch does not save."""

    def __init__(self):
        super().__init__()
        self.register_buffer("length", torch.ones(()), persistent=False)

    def forward(self, x):
        if self.training:
            self.length.lerp_(x.detach().norm(dim=1).mean(), 0.1)
        return super().forward(x / self.length)


class RankedMlp(Mlp):
    """An MLP whose initial weights differ between processes, as those of a module that a script creates do."""

    def __init__(self):
        super().__init__()
        with torch.no_grad():
            self.head.weight.mul_(1 + int(os.environ.get("RANK", "0")))


def transformers_resnet(num_classes):
    """Return a ResNet of transformers, built from its configuration."""
    from transformers import ResNetConfig, ResNetForImageClassification

    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
    return ResNetForImageClassification(ResNetConfig(num_channels=1, num_labels=num_classes, **sizes))


def shapes(split="train", count=96):
    """Return images that show one of three shapes: bars down, bars across, or a square."""
    generator = torch.Generator().manual_seed(len(split))
    labels = torch.arange(count) % 3
    images = 60 * torch.rand(count, 1, 8, 8, generator=generator)
    images[labels == 0, :, :, ::2] += 180
    images[labels == 1, :, ::2] += 180
    images[labels == 2, :, 2:6, 2:6] += 180
    return images.byte(), labels


def clouds(split="train", count=96):
    """Return vectors around one of three centers."""
    generator = torch.Generator().manual_seed(len(split))
    labels = torch.arange(count) % 3
    return 3 * F.one_hot(labels, 6).float() + torch.randn(count, 6, generator=generator), labels


@dataclass(frozen=True, kw_only=True)
class Mine(smoothcert.Method):
    """Gaussian training with a weight."""

    name = "mine"
    weight: float = 2.0

    def step(self, model, x, y, *, draws, epoch, soft=None):
        noisy = x + self.sigma * draws.noise(x, 1)[0]
        return smoothcert.StepOutput(self.weight * F.cross_entropy(model(noisy), y))


CASES = {
    "ConvNet": (ConvNet, shapes),
    "Mlp": (Mlp, clouds),
    "TrackingMlp": (TrackingMlp, clouds),
    "RankedMlp": (RankedMlp, clouds),
    "transformers_resnet": (transformers_resnet, shapes),
}


def train(case, method, runs, **options):
    """Train a network by a method for a few epochs."""
    model, data = CASES[case]
    settings = {"epochs": 6, "batch": 32, "sigma": 0.25, "label_samples": 20, "validation": 0.25}
    settings |= {"optimizer": "adamw", "learning_rate": 0.01, "warmup_epochs": 1.0}
    named = {"consistency": {"weight": 2.0}, "smoothadv": {"attack_steps": 2}, "catrs": {"attack_steps": 2}}
    return smoothcert.train(
        model, data(), test_data=data("test"), method=method, runs=runs,
        **{**settings, "options": named.get(method, {}), **options},
    )  # fmt: skip


def child(case, method, runs, options):
    """Train in a process of its own, in one thread."""
    torch.set_num_threads(1)
    train(case, method, runs, **options)


if __name__ == "__main__":
    network, how, folder, size = sys.argv[1:5]
    train(network, how, folder, batch=int(size), batch_norm="synced", name="run", optimizer="sgd")
