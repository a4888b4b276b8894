"""Helpers for custom operators, which `torch.compile` calls without tracing them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor, library


def operator(name: str) -> Callable[[Callable[..., Any]], Any]:
    """Register a function as a custom operator, which only code compiled by `torch.compile` calls.

    Other code calls the function itself, since calling a custom operator imports the compiler, which takes seconds, and
    adds overhead to each launch. The result has no gradient.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        known: Any = library.custom_op(name, function, mutates_args=())

        @wraps(function)
        def call(*inputs: Any) -> Any:
            return known(*inputs) if torch.compiler.is_compiling() else function(*inputs)

        call.register_fake = known.register_fake  # type: ignore[attr-defined]
        return call

    return decorate


def first_is_differentiable(ctx: Any, output: tuple[Tensor, ...]) -> None:
    """Make only the first output differentiable; otherwise, zero gradients of the other outputs would be allocated."""
    ctx.mark_non_differentiable(*output[1:])
    if not torch.compiler.is_compiling():  # the compiler drops unused gradients by itself
        ctx.set_materialize_grads(False)
