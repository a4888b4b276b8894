"""Launch `resident_stage.cu`, which computes a stage of a CIFAR ResNet in shared memory, for voting in bfloat16."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from smoothcert.kernels.cuda_source import CudaFunction, compile_source
from smoothcert.kernels.operators import operator

SOURCE = Path(__file__).with_suffix(".cu")
STEM_CHANNELS = 4  # largest number of image channels that the first stage accepts


class StageShape(NamedTuple):
    """Constants of `resident_stage.cu` for one number of channels, explained in `resident_convolution.cuh`."""

    side: int
    images: int
    warps: int
    tiles: int
    lines: int
    resident: int
    ahead: int

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block: two buffers per image, with borders."""
        return self.images * 2 * (self.side + 2) ** 2 * 2 * (512 // self.side)

    def constants(self, channels: int) -> dict[str, int]:
        """Return the macros for this number of channels."""
        return {"CHANNELS": channels, **{name.upper(): value for name, value in self._asdict().items()}}


# Shapes by number of channels. They are fixed: the order of sums, and so the certified function, could depend on them.
SHAPES = {
    16: StageShape(side=32, images=1, warps=4, tiles=2, lines=16, resident=3, ahead=5),
    32: StageShape(side=16, images=1, warps=2, tiles=2, lines=16, resident=5, ahead=3),
    64: StageShape(side=8, images=4, warps=4, tiles=2, lines=8, resident=2, ahead=5),
}


def arrange(weight: Tensor, tiles: int) -> Tensor:
    """Arrange filters [filter, channel, y, x] as a vector, in the order in which lanes read them.

    The vector is a flattened array [group of filters, 16-byte chunk, lane, value in chunk]. For each tap, block of 16
    channels and tile of 8 filters, a lane holds 4 values: two pairs of channels of one filter. Filters are assigned to
    tiles so that each lane accumulates the sums of neighboring filters.
    """
    filters, channels, height, width = weight.shape
    groups, blocks = filters // (8 * tiles), channels // 16
    # Axes of channels: block, half, lane, pair. Axes of filters: group, lane, tile, pair.
    parts = weight.permute(2, 3, 1, 0).reshape(height * width, blocks, 2, 4, 2, groups, 4, tiles, 2)
    lanes = parts.permute(5, 0, 1, 7, 2, 6, 8, 3, 4).reshape(groups, -1, 4, 32, 2)
    return lanes.transpose(2, 3).flatten()


def arrange_norm(norm: nn.BatchNorm2d) -> Tensor:
    """Return scale and bias [2, filter] of BatchNorm in eval mode."""
    weight, bias, mean, var = (
        getattr(norm, name).double() for name in ("weight", "bias", "running_mean", "running_var")
    )
    scale = weight / (var + norm.eps).sqrt()
    return torch.stack([scale, bias - mean * scale]).float()


@cache
def stage_function(channels: int, shape: StageShape, device: int) -> CudaFunction:
    """Compile the kernel for a device, which must be the current device, and return it."""
    program = compile_source(SOURCE, shape.constants(channels), torch.cuda.get_device_capability(device))
    return CudaFunction(program, "resident_stage", 32 * shape.warps, shape.shared_bytes, shape.resident)


def compile_stages(device: torch.device) -> None:
    """Compile the kernels of all stages; raise OSError or RuntimeError if that fails."""
    with torch.cuda.device(device):
        for channels, shape in SHAPES.items():
            stage_function(channels, shape, torch.cuda.current_device())


def run_stage(images: Tensor, weights: Tensor, affine: Tensor, shape: StageShape) -> Tensor:
    """Apply a stage to images [count, height, width, channels].

    `weights` and `affine` are buffers of `models.cuda.resident_network.ResidentStage`.
    """
    channels = affine.shape[2]
    halving = 2 * images.shape[3] == channels
    if halving or images.stride(1) != images.shape[2] * images.stride(2):
        images = images.contiguous()
    count, _, _, given = images.shape
    out = images.new_empty((count, shape.side, shape.side, channels))
    with torch.cuda.device_of(images):
        function = stage_function(channels, shape, torch.cuda.current_device())
        layers = len(affine) - 2 if halving else len(affine)
        steps = images.stride(0), images.stride(3), images.stride(2)
        function.launch(-(-count // shape.images), out, images, weights, affine, count, layers, given, *steps)
    return out


@operator("smoothcert::resident_stage")
def resident_stage(images: Tensor, weights: Tensor, affine: Tensor) -> Tensor:
    """Apply a stage with `run_stage`, using the `StageShape` for its number of channels."""
    return run_stage(images, weights, affine, SHAPES[affine.shape[2]])


@resident_stage.register_fake
def _(images: Tensor, weights: Tensor, affine: Tensor) -> Tensor:
    channels = affine.shape[2]
    side = SHAPES[channels].side
    return images.new_empty((len(images), side, side, channels))
