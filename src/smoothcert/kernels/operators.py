"""Decorator for functions that `torch.compile` calls without tracing them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import library


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
