"""Triton kernels for CUDA devices; their modules are imported where Triton is, by those who use them.

Noise: `noise`. Votes in bfloat16: `pooling` for LeNet, `residual_stage` and `residual_network` for the CIFAR ResNets,
`bottleneck` and `pointwise` for ResNet-50. The CIFAR ResNets' training in bfloat16: `convolution` and `batchnorm` are
the kernels, `training_layers` has the layers of a stage with their gradients, `training_network` the network.
"""

from __future__ import annotations

import importlib
from typing import Any

_ROOM = 227 * 1024  # bytes of shared memory that a program may have: the tiles are those of Hopper
_fitting: bool | None = None
_noise: Any = None


def network_kernels() -> bool:
    """Whether the current CUDA device runs networks by our kernels: Triton is there, and their tiles have room."""
    global _fitting  # not functools.cache, which the compiler would look through
    if _fitting is None:
        _fitting = bool(triton_kernels()) and _shared_memory() >= _ROOM
    return _fitting


def _shared_memory() -> int:
    import torch
    from triton.runtime import driver  # type: ignore[import-not-found, import-untyped, unused-ignore]

    return int(driver.active.utils.get_device_properties(torch.cuda.current_device())["max_shared_mem"])


def triton_kernels() -> Any:
    """Return the module `smoothcert.kernels.noise`, or False if Triton is not installed."""
    global _noise  # torch.compile would trace through functools.cache
    if _noise is None:
        try:
            _noise = importlib.import_module("smoothcert.kernels.noise")
        except ImportError:
            _noise = False
    return _noise
