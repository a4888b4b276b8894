"""Exceptions and warnings shown to users, and helpers that phrase their messages."""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import re
import reprlib
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_MAX_LISTED_NAMES = 40
_LONGEST_QUOTE = 400
_WORDS: dict[type, str] = {type(None): "None", Integral: "int", Real: "float"}
_OUT_OF_MEMORY = ("OutOfMemoryError", "DefaultCPUAllocator", "out of memory", "ALLOC_FAILED")


class SmoothcertError(Exception):
    """Base class of all errors that smoothcert raises, for example for a missing file or a full disk.

    Example:
        >>> try:
        ...     raise UsageError("Expected `n` to be at least 1, but got 0.")
        ... except SmoothcertError as error:
        ...     print(error)
        Expected `n` to be at least 1, but got 0.
    """


class UsageError(SmoothcertError, ValueError):
    """Error for an invalid argument; the command line exits with code 2.

    Example:
        >>> issubclass(UsageError, ValueError)
        True
    """


class Notice(UserWarning):
    """A warning that the command line prints as one line."""


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: a suggestion, or only a period if no known name is similar.

    A known name whose initials spell `name` takes precedence over similar names.

    >>> suggest("epoch", ["epochs", "sigma"]), suggest("x", ["epochs", "sigma"])
    ("; did you mean 'epochs'?", '.')
    >>> suggest("lr", ["lr_step", "learning_rate"])
    "; did you mean 'learning_rate'?"
    """
    near = [known_name for known_name in sorted(known) if "".join(re.findall(r"(?:^|_)(.)", known_name)) == name]
    near = near or difflib.get_close_matches(str(name), sorted(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else "."


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for an unknown name, with the closest known name as a suggestion.

    >>> print(unknown_name("model", "lenett", ["lenet", "resnet50"]))
    Unknown model 'lenett'; did you mean 'lenet'? Known: lenet, resnet50.
    """
    choices = sorted(known)
    if not isinstance(name, str):
        return UsageError(f"Expected the name of a {kind}, but got {quote(name)}.")
    hint = suggest(name, choices)
    if len(choices) > _MAX_LISTED_NAMES:
        nearest = difflib.get_close_matches(str(name), choices, n=5, cutoff=0.0)
        return UsageError(f"Unknown {kind} {name!r}{hint} Nearest of {len(choices)}: {', '.join(nearest)}.")
    return UsageError(f"Unknown {kind} {name!r}{hint} Known: {', '.join(choices)}.")


def takes(**kinds: Any) -> Callable[[F], F]:
    """Return a decorator that raises UsageError if a named argument is not an instance of the given class or classes.

    Applied to a class, it checks the arguments of the constructor. A bool is not accepted as a number. An argument that
    may be a Path must be a possible file name.

    >>> @takes(name=str, times=int)
    ... def greet(name, times=1): return f"hello {name}" * times
    >>> greet(3)
    Traceback (most recent call last):
    smoothcert.errors.UsageError: Expected `name` to be of type str, but got 3.
    >>> greet("you", times=True)
    Traceback (most recent call last):
    smoothcert.errors.UsageError: Expected `times` to be of type int, but got True.
    """

    def decorate(function: F) -> F:
        if isinstance(function, type):
            function.__init__ = decorate(function.__init__)  # type: ignore[misc]
            return function
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            try:
                given = signature.bind(*arguments, **named).arguments
            except TypeError:  # the call below raises the same error
                given = {}
            for name, kind in kinds.items():
                if name in given:
                    _check_type(name, given[name], kind if isinstance(kind, tuple) else (kind,))
            return function(*arguments, **named)

        return cast(F, call)

    return decorate


def _check_type(name: str, value: object, classes: tuple[type, ...]) -> None:
    unwanted_bool = isinstance(value, bool) and bool not in classes
    scalar = Iterable in classes and getattr(value, "ndim", None) == 0  # such an array is not iterable
    if unwanted_bool or scalar or not isinstance(value, classes):
        words = " or ".join(_WORDS.get(one, one.__name__) for one in classes)
        raise UsageError(f"Expected `{name}` to be of type {words}, but got {quote(value)}.")
    if Path in classes and isinstance(value, str | Path) and not _is_file_name(value):
        raise UsageError(f"Expected `{name}` to be a possible file name, but got {quote(value)}.")


def _is_file_name(name: str | Path) -> bool:
    return "\0" not in str(name) and all(len(os.fsencode(part)) < 256 for part in Path(name).parts)


def quote(value: object) -> str:
    """Return a short representation of any value, for quoting it in a message.

    >>> quote([0] * 1000), quote("x" * 1000)
    ('[0, 0, 0, 0, 0, 0, ...]', "'xxxxxxxxxxxx...xxxxxxxxxxxxx'")
    """
    try:
        return reprlib.repr(value)
    except Exception:  # an integer with too many digits, or an object that cannot be printed
        return kind_of(value)


def printable(text: str) -> str:
    r"""Escape unprintable characters except line breaks.

    Otherwise, names from files could move a terminal's cursor, change its colors or reverse its text.

    >>> printable("a\x1b[31mb\n")
    'a\\x1b[31mb\n'
    """
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun.

    >>> counted(1, "epoch"), counted(2_000, "epoch"), counted(0, "class", "classes")
    ('1 epoch', '2,000 epochs', '0 classes')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def kind_of(value: object) -> str:
    """Return the type of a value with its article.

    >>> kind_of("text"), kind_of(3), kind_of(type("UserModel", (), {})())
    ('a str', 'an int', 'a UserModel')
    """
    name = type(value).__name__
    return f"{'an' if re.match('[aeio]|u(?!se|ni|net)|ndarray', name, re.IGNORECASE) else 'a'} {name}"


def first_line(error: BaseException) -> str:
    r"""Return the first line of an error message without its period, for quoting in another message.

    If the first line ends in a colon, the second line is included. A long result is cut off.

    >>> first_line(RuntimeError("No such device.\nTraceback follows."))
    'No such device'
    >>> first_line(RuntimeError("backend='inductor' raised:\nNo working C++ compiler found."))
    "backend='inductor' raised: No working C++ compiler found"
    """
    first, *others = str(error).strip().split("\n")
    text = " ".join([first, *others[: first.endswith(":")]]).rstrip(".")
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."  # messages may quote damaged files


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if an error means that memory ran out. Some libraries raise a RuntimeError for this.

    >>> is_out_of_memory(RuntimeError("CUDA error: out of memory")), is_out_of_memory(RuntimeError("Connection reset"))
    (True, False)
    """
    return isinstance(error, MemoryError) or any(sign in repr(error) for sign in _OUT_OF_MEMORY)
