"""Numerical precision as part of the function that is certified."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from smoothcert.config import PRECISIONS
from smoothcert.errors import unknown_name


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
        if device.type == "cuda":
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
