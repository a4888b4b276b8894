"""Collect the errors of several runs: the other runs continue, and all errors are raised together at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from smoothcert.distributed.ranks import current_ranks
from smoothcert.errors import SmoothcertError
from smoothcert.runtime.deadline import OutOfTimeError


@contextmanager
def collected(errors: list[SmoothcertError]) -> Iterator[None]:
    """Append an error to `errors` instead of raising it, unless time is up or other ranks would wait for this rank."""
    try:
        yield
    except SmoothcertError as error:
        if isinstance(error, OutOfTimeError) or current_ranks().size > 1:
            raise
        errors.append(error)


def raise_together(errors: Sequence[SmoothcertError]) -> None:
    """Raise a single error unchanged; combine several into one, of type OutOfTimeError if any of them has this type."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        kind = OutOfTimeError if any(isinstance(error, OutOfTimeError) for error in errors) else SmoothcertError
        raise kind(" ".join(str(error) for error in errors)) from errors[0]
