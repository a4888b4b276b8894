"""Kernels for CUDA devices, with the code that launches them; the networks are in `smoothcert.models.cuda`.

- `noise`: Philox noise.
- `pooling`: voting in bfloat16 with LeNet.
- `bottleneck_convolution` and `pointwise`: voting in bfloat16 with ResNet-50.
- `resident_stage`: voting in bfloat16 with CIFAR ResNets.
- `convolution`, `batchnorm` and, built on them, `training_layers`: training of CIFAR ResNets in bfloat16.
- `resident_attack`: the attacks in that training.

`resident_stage` and `resident_attack` are written in CUDA C++ that NVRTC compiles (`cuda_source`), and share
`resident_convolution.cuh`. The others are written in Triton; import them only where it is installed.
"""

from __future__ import annotations

import importlib
from typing import Any

_NEEDED_SHARED_MEMORY = 227 * 1024  # bytes per program; the tiles are tuned for Hopper
_fitting: bool | None = None
_noise: Any = None


def network_kernels() -> bool:
    """Return True if Triton is installed and the GPU has enough shared memory for the kernels that run networks."""
    global _fitting  # torch.compile would trace through functools.cache
    if _fitting is None:
        _fitting = bool(triton_kernels()) and _shared_memory() >= _NEEDED_SHARED_MEMORY
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
