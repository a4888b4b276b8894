"""Run code in one of the supported numerical precisions, and restore the caller's settings afterwards.

The precision is part of the certified function.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from smoothcert.errors import unknown_name
from smoothcert.smoothing.precision_names import PRECISIONS


def check_precision(precision: str) -> None:
    """Raise if `precision` is not the name of a supported precision."""
    if not isinstance(precision, str) or precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)


@contextmanager
def numerics(precision: str, device: torch.device, *, deterministic: bool = True) -> Iterator[None]:
    """Run code in one precision: fp32 without TF32, fp32 with TF32, or bf16 autocast.

    With `deterministic`, convolutions give the same scores in every process, unless the network is compiled. Autocast
    enabled by the caller has no effect inside.
    """
    with ExitStack() as stack:
        if device.type == "cpu":
            _forbid_less_than_float32(stack)
        if device.type == "cuda":
            _reset_tf32(stack)
            tf32 = precision != "fp32"
            before = torch.backends.cuda.matmul.allow_tf32
            stack.callback(setattr, torch.backends.cuda.matmul, "allow_tf32", before)
            torch.backends.cuda.matmul.allow_tf32 = tf32
            stack.enter_context(
                torch.backends.cudnn.flags(
                    enabled=True, benchmark=not deterministic, deterministic=deterministic, allow_tf32=tf32
                )
            )
        if torch.amp.is_autocast_available(device.type):
            stack.enter_context(torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"))
            stack.callback(torch.clear_autocast_cache)  # inside an outer autocast, the cache would outlive this block
        yield


def _forbid_less_than_float32(stack: ExitStack) -> None:
    """Disable lower CPU precisions that the caller may have allowed for float32, until the stack is closed."""
    onednn: Any = torch.backends.mkldnn
    for place in (onednn.matmul, onednn.conv):
        if place.fp32_precision not in ("none", "ieee"):
            stack.callback(setattr, place, "fp32_precision", place.fp32_precision)
            place.fp32_precision = "ieee"


def _reset_tf32(stack: ExitStack) -> None:
    """Reset TF32 settings of PyTorch's new API (`fp32_precision`) to the defaults of the old one (`allow_tf32`).

    Otherwise PyTorch refuses to read the old flags, and the new API's general settings take precedence over them. The
    caller's settings are restored when the stack is closed.
    """
    backends: Any = torch.backends
    matmul, cudnn = backends.cuda.matmul, backends.cudnn
    general, special = (backends, cudnn), (matmul, cudnn.conv, cudnn.rnn)
    try:
        _ = matmul.allow_tf32, cudnn.allow_tf32
        settled = all(place.fp32_precision == "none" for place in general)
    except RuntimeError:
        settled = False
    if settled:
        return
    for place in (*special, cudnn, backends):
        stack.callback(setattr, place, "fp32_precision", place.fp32_precision)
    for place in general:
        place.fp32_precision = "none"
    matmul.allow_tf32, cudnn.allow_tf32 = False, True
