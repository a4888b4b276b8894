"""Numerical precision as part of the function that is certified."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from smoothcert.errors import unknown_name
from smoothcert.smoothing.precision_names import PRECISIONS


def check_precision(precision: str) -> None:
    """Refuse a precision that does not exist."""
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)


@contextmanager
def numerics(precision: str, device: torch.device, *, deterministic: bool = True) -> Iterator[None]:
    """Run the network in one precision: fp32 without TF32, fp32 with TF32, or bf16 autocast.

    Deterministic convolution algorithms make the same input give the same scores in every process, unless the network
    was compiled. An autocast that the caller has switched on does not reach in here.
    """
    check_precision(precision)
    with ExitStack() as stack:
        if device.type == "cpu":
            _forbid_less_than_float32(stack)
        if device.type == "cuda":
            _settle_tf32(stack)
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
            stack.callback(torch.clear_autocast_cache)  # which would outlive a step within another autocast
        yield


def _forbid_less_than_float32(stack: ExitStack) -> None:
    """Switch off, until the stack is left, what a caller may have allowed CPUs to round float32 to."""
    onednn: Any = torch.backends.mkldnn
    for place in (onednn.matmul, onednn.conv):
        if place.fp32_precision not in ("none", "ieee"):
            stack.callback(setattr, place, "fp32_precision", place.fp32_precision)
            place.fp32_precision = "ieee"


def _settle_tf32(stack: ExitStack) -> None:
    """Where the caller has set TF32 in PyTorch's new way, bring it to the defaults of the old one.

    The old way cannot be read until then, and forbids nothing that the new one allows in general. What the caller has
    set is put back when the stack is left.
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
