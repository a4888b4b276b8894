"""The errors users see. Each message is one sentence that says what was expected and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST_NAMES = 40  # that a message lists; there are more recipes than anyone would read


class SmoothcertError(Exception):
    """Something outside the program went wrong: a missing file, a full disk, a damaged download."""


class UsageError(SmoothcertError, ValueError):
    """A value the caller gave cannot be used; the command line answers it with exit code 2."""


class Notice(UserWarning):
    """Work goes on, but not quite as the user may think; the command line writes it as one line."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a name that does not exist, with the nearest one that does.

    >>> print(unknown_name("model", "lenett", ["lenet", "resnet50"]))
    Unknown model 'lenett'; did you mean 'lenet'? Known: lenet, resnet50.
    """
    choices = sorted(known)
    near = difflib.get_close_matches(str(name), choices, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    if len(choices) > _MOST_NAMES:
        nearest = difflib.get_close_matches(str(name), choices, n=5, cutoff=0.0)
        return UsageError(f"Unknown {kind} {name!r}{hint} Nearest of {len(choices)}: {', '.join(nearest)}.")
    return UsageError(f"Unknown {kind} {name!r}{hint} Known: {', '.join(choices)}.")


def first_line(error: BaseException) -> str:
    r"""Return what a library's error says first, to be put into a sentence of ours.

    >>> first_line(RuntimeError("No such device.\nTraceback follows."))
    'No such device'
    >>> first_line(RuntimeError("backend='inductor' raised:\nNo working C++ compiler found."))
    "backend='inductor' raised: No working C++ compiler found"
    """
    first, *others = str(error).strip().split("\n")
    return " ".join([first, *others[: first.endswith(":")]]).rstrip(".")
