"""Several pieces of work, of which some fail: the others go on, and what went wrong is said at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from smoothcert.distributed.ranks import current_ranks
from smoothcert.errors import SmoothcertError
from smoothcert.runtime.deadline import OutOfTimeError


@contextmanager
def collected(errors: list[SmoothcertError]) -> Iterator[None]:
    """Note what goes wrong with a piece of work among others; not that time is up, nor where ranks would wait."""
    try:
        yield
    except OutOfTimeError:
        raise
    except SmoothcertError as error:
        if current_ranks().size > 1:
            raise
        errors.append(error)


def raise_together(errors: Sequence[SmoothcertError]) -> None:
    """Raise what went wrong with some of several runs, if anything did; out of time if any of them was."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        kind = OutOfTimeError if any(isinstance(error, OutOfTimeError) for error in errors) else SmoothcertError
        raise kind(" ".join(str(error) for error in errors)) from errors[0]
