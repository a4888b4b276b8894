"""Progress on stderr: a live bar on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from smoothcert.errors import Notice

COMPILING = "Compiling {}; the first time this can take a minute, later it is read from the compiler's cache."
_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_OF_SPEED = 30.0  # a slow start, such as compiling, is soon forgotten


def speaks() -> bool:
    """Whether this process talks to the user: of several that work together, the first does."""
    return os.environ.get("RANK", "0") == "0"


class ProgressBar:
    """Shows how far a piece of work is, its speed and the time left.

    `unit` is what is counted; `start` what was done before, which does not count for the speed. That is the speed of
    the last half minute and, when all is done, of the whole.
    """

    def __init__(self, title: str, total: int | None, unit: str, start: int = 0) -> None:
        self.title, self.total, self.unit, self.start = title, total, unit, start
        self._shown = time.monotonic()
        self._begun = self._shown, 0
        self._marks = deque([self._begun])  # moments, and what had been done since the start
        self._bar: Any = _rich_bar() if sys.stderr.isatty() and speaks() else None
        self._task = self._bar.add_task(title, total=total, completed=start, note="") if self._bar else None

    def __enter__(self) -> ProgressBar:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()

    def update(self, done: int, note: str = "") -> None:
        """Show that `done` are done, with a note of what is known so far."""
        if not speaks():
            return
        now = time.monotonic()
        text = ", ".join(part for part in (*self._rate(now, done), note) if part)
        if self._bar:
            self._bar.update(self._task, completed=done, total=self.total, note=text)
        elif now - self._shown >= _SECONDS_BETWEEN_LINES or done == self.total:
            self._shown = now
            of = f" of {self.total:,}" if self.total else ""
            print(f"{self.title}: {done:,}{of} {self.unit}{text and ', '}{text}", file=sys.stderr, flush=True)

    def _rate(self, now: float, done: int) -> tuple[str, str]:
        """Write the speed and the time left, as far as they can be told."""
        gained, ends = done - self.start, done == self.total
        if now - self._marks[-1][0] >= 1.0:
            self._marks.append((now, gained))
        while len(self._marks) > 1 and now - self._marks[1][0] >= _SECONDS_OF_SPEED:
            self._marks.popleft()
        then, before = self._begun if ends else self._marks[0]
        if now - then < 0.5 or gained == before:
            return "", ""
        speed, left = (gained - before) / (now - then), ""
        if self.total and not ends and 1000 * gained >= self.total - self.start:  # before, nobody knows
            left = f"{duration((self.total - done) / speed)} left"
        return f"{_number(speed)} {self.unit}/s", left


def duration(seconds: float) -> str:
    """Write a time for people.

    >>> duration(59.6), duration(3723), duration(200_000)
    ('1:00', '1:02:03', '2 d 7 h')
    """
    whole = round(seconds)
    if whole >= 86_400:
        return f"{whole // 86_400} d {whole % 86_400 // 3600} h"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def say(text: str) -> None:
    """Tell the user something, on stderr."""
    if speaks():
        print(text, file=sys.stderr, flush=True)


@contextmanager
def short_notices() -> Iterator[None]:
    """Have our notices be one line on stderr, without the place in the code that warnings name."""
    usual = warnings.formatwarning

    def written(message: Any, category: type[Warning], *place: Any, **more: Any) -> str:
        if not issubclass(category, Notice):
            return usual(message, category, *place, **more)
        return f"smoothcert: {message}\n" if speaks() else ""

    warnings.formatwarning = written
    try:
        yield
    finally:
        warnings.formatwarning = usual


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _rich_bar() -> Any:
    """Return a live bar, or None where rich is not installed: plain lines then do."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.table import Column
    except ImportError:
        return None
    console = Console(stderr=True)
    # Where it is narrow the note is cut off, never the title and the count.
    columns = (
        TextColumn("{task.description}"),
        BarColumn(max(4, min(40, console.width // 6))),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[note]}", table_column=Column(overflow="ignore")),
    )
    return Progress(*columns, console=console)
