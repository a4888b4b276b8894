"""Validate and convert the inputs of `SmoothedClassifier`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothcert.errors import UsageError, kind_of, quote
from smoothcert.smoothing.noising import check_grid
from smoothcert.statistics.bounds import check_seed
from smoothcert.statistics.noise import GridNoise, Noise

AUTO = "auto"
"""Default range of inputs: [0, 1] for images, unlimited for vectors."""
STEPS_PER_SIGMA = 1024
"""Smallest sigma, as a multiple of the spacing of float32 numbers at the largest input.

Inputs are rounded to float32, by at most half of this spacing per value. This moves an input of d values by at most
sqrt(d) * sigma / 2048, and its true radius by no more. The sum of input and noise is rounded, too, but this rounding is
a function of the exact sum, and so a part of the base classifier, like the cast of noisy inputs to bfloat16.
"""


def as_batch(x: Any, shape: torch.Size | None) -> tuple[Tensor, bool]:
    """Return x as a float32 batch, and True if x is a single input.

    `shape` is the shape of one input, if known.
    """
    try:
        inputs = torch.as_tensor(x).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"Expected inputs to be a tensor or an array, but got {kind_of(x)}.") from error
    if inputs.is_meta:
        raise UsageError("Expected inputs with values, but got a tensor on the device `meta`.")
    if inputs.dtype == torch.uint8:
        raise UsageError("Expected images to be floats in [0, 1], but got uint8; divide them by 255.")
    if not inputs.is_floating_point():
        raise UsageError(f"Expected floating-point inputs, but got {inputs.dtype}.")
    if shape is not None and shape not in (inputs.shape, inputs.shape[1:]):
        raise UsageError(f"Expected inputs of shape {list(shape)}, but got {list(inputs.shape)}.")
    single = inputs.shape == shape if shape is not None else inputs.dim() in (1, 3)
    if shape is None and inputs.dim() not in (1, 2, 3, 4):
        raise UsageError(f"Expected a vector, an image or a batch of them, but got shape {list(inputs.shape)}.")
    batch = (inputs.unsqueeze(0) if single else inputs).float()
    if not batch.numel():
        raise UsageError(f"Expected at least one non-empty input, but got shape {list(inputs.shape)}.")
    return batch, single


def check_values(batch: Tensor, noise: Noise, limits: tuple[float, float] | str | None) -> None:
    """Raise if inputs are not finite, not valid for `noise`, or outside the range `limits`."""
    if not bool(batch.isfinite().all()):
        raise UsageError("The inputs contain NaN or values that are infinite in float32.")
    if isinstance(noise, GridNoise):
        check_grid(noise, batch)
    else:
        _check_resolution(batch, noise.sigma)
    if limits == AUTO:
        limits = (0.0, 1.0) if batch.dim() == 4 else None
    if limits is None:
        return
    low, high = float(batch.min()), float(batch.max())
    if low < float(limits[0]) or high > float(limits[1]):
        raise UsageError(
            f"Expected inputs in [{limits[0]}, {limits[1]}], the range that `sigma` refers to, but they span "
            f"[{low:.6g}, {high:.6g}]. Wrap a model made for another range with `adapt_inputs`; `input_range=None` "
            "disables this check."
        )


def _check_resolution(batch: Tensor, sigma: float) -> None:
    largest = np.float32(batch.abs().max().item())
    smallest = STEPS_PER_SIGMA * float(np.spacing(largest))
    if sigma < smallest:
        raise UsageError(
            f"Expected `sigma` to be at least {smallest:.2g} for inputs as large as {largest:.6g} ({STEPS_PER_SIGMA:,} "
            f"times the distance between float32 numbers there), but got {sigma:.6g}; shift or scale the inputs."
        )


def check_range(limits: Any) -> None:
    """Raise if `limits` is not a valid `input_range`."""
    if limits is None or (isinstance(limits, str) and limits == AUTO):
        return
    try:
        low, high = limits if isinstance(limits, tuple | list) else ()
        ordered = float(low) < float(high)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        ordered = False
    if not ordered:
        raise UsageError(f"Expected `input_range` to be (low, high) with low < high, or None, but got {quote(limits)}.")


def as_shape(shape: Sequence[int]) -> torch.Size:
    """Convert `input_shape` to a `torch.Size`, or raise UsageError."""
    try:
        return torch.Size(shape)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise UsageError(f"Expected `input_shape` to be a shape such as (3, 32, 32), but got {quote(shape)}.") from None


def as_indices(index: Any, inputs: Tensor) -> Tensor:
    """Return the integer that identifies each input's noise: its `index`, or by default a hash of the input's bytes.

    With the hash, different inputs have different noise even if they are certified one by one.
    """
    count = len(inputs)
    try:
        indices = _hash_rows(inputs) if index is None else torch.as_tensor(index).reshape(-1)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise UsageError(f"Expected `index` to contain one integer per input, but got {quote(index)}.") from error
    if indices.is_floating_point() or indices.is_complex() or indices.dtype == torch.bool:
        raise UsageError(f"Expected `index` to contain one integer per input, but got {indices.dtype}.")
    if len(indices) != count:
        raise UsageError(f"Expected one `index` per input ({count}), but got {len(indices)}.")
    if bool((indices < 0).any() | (indices >= 1 << 32).any()):
        raise UsageError("Expected every `index` to be between 0 and 2**32 - 1.")
    return indices


def _hash_rows(inputs: Tensor) -> Tensor:
    """Return 32 bits of a hash of each input."""
    rows = inputs.cpu().float().flatten(1).contiguous().numpy().astype("<f4")
    return torch.tensor([int.from_bytes(blake2b(row.tobytes(), digest_size=4).digest(), "little") for row in rows])


def as_seed(seed: int | None) -> int:
    """Return the seed, or a fresh one if it is None."""
    if seed is None:
        return secrets.randbits(63)
    check_seed(seed)
    return seed
