"""LeNet for MNIST."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.models.pooled_convolution import conv_relu_pool


class LeNet(nn.Module):
    """Two 5x5 convolutions, each with ReLU and max pooling, and two linear layers, for 28x28 images.

    It has 431,080 parameters with one input channel and ten classes, and PyTorch's default initialization.
    """

    pooled = ("conv1", "conv2")  # layers that a fused kernel can replace, together with their ReLU and pooling

    def __init__(self, num_classes: int = 10, in_channels: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(4 * 4 * 50, 500)
        self.fc2 = nn.Linear(500, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of a batch [count, channels, 28, 28]."""
        x = conv_relu_pool(conv_relu_pool(x, self.conv1), self.conv2)
        scores: Tensor = self.fc2(F.relu(self.fc1(x.flatten(1))))
        return scores
