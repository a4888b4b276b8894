"""Convolution, ReLU and max pooling of LeNet on our Triton kernel, for voting in bfloat16."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from torch import Tensor, nn

from smoothcert.kernels.pooling import arrange, conv_relu_pool


class PooledConv(nn.Module):
    """A convolution with ReLU and 2x2 max pooling; `flat` if a linear layer follows."""

    weight: Tensor
    bias: Tensor

    def __init__(self, conv: nn.Conv2d, *, flat: bool = False) -> None:
        super().__init__()
        assert conv.bias is not None
        self.channels, self.size, self.flat = conv.in_channels, conv.kernel_size[0], flat
        self.register_buffer("weight", arrange(conv.weight.detach()))
        self.register_buffer("bias", conv.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """Return the pooled images [count, filters, height, width], or [count, values] if `flat`."""
        shape = (self.channels, self.size, self.flat)
        pooled: Tensor = conv_relu_pool(x.permute(0, 2, 3, 1), self.weight, self.bias, *shape)
        return pooled if self.flat else pooled.permute(0, 3, 1, 2)
