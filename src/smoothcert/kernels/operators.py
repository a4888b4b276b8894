"""Functions that the compiler takes as they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import library


def operator(name: str) -> Callable[[Callable[..., Any]], Any]:
    """Make a function an operator to the compiler, and leave it a plain function to everyone else.

    Calling an operator imports the compiler, which takes seconds, and costs the host time at each launch.
    What it returns has no gradient.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        known: Any = library.custom_op(name, function, mutates_args=())

        @wraps(function)
        def call(*inputs: Any) -> Any:
            return known(*inputs) if torch.compiler.is_compiling() else function(*inputs)

        call.register_fake = known.register_fake  # type: ignore[attr-defined]
        return call

    return decorate
