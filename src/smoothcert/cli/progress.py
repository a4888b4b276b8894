"""Progress on stderr: a live bar on a terminal, an occasional plain line in logs and pipes."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from smoothcert.cli.parser import Parser, name_flags
from smoothcert.errors import Notice, printable

COMPILING = "Compiling {}: this can take a minute the first time; later runs use the compiler's cache."
_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_OF_SPEED = 30.0  # the speed is averaged over this window, so that a slow start (compilation) stops counting


def is_reporting() -> bool:
    """Return True if this process reports to the user; under torchrun only rank 0 does."""
    return os.environ.get("RANK", "0") == "0"


class ProgressBar:
    """Shows the progress of a task with its recent speed (at the end, that of the whole task) and the time left.

    `unit` is in plural, such as "images". `start` units were done by an earlier run and do not count toward the speed.
    A `transient` bar is removed when done, and the end of its task is not logged.
    """

    def __init__(self, title: str, total: int | None, unit: str, start: int = 0, *, transient: bool = False) -> None:
        self.title, self.total, self.unit, self.start, self.transient = title, total, unit, start, transient
        self._shown = time.monotonic()
        self._first_mark = self._shown, 0
        self._marks = deque([self._first_mark])  # (time, units done since the start)
        self._bar: Any = _rich_bar(transient) if sys.stderr.isatty() and is_reporting() else None
        self._task = self._bar.add_task(printable(title), total=total, completed=start, note="") if self._bar else None

    def __enter__(self) -> ProgressBar:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()

    def update(self, done: int, note: str = "") -> None:
        """Show the number of units done, followed by a note."""
        now = time.monotonic()
        text = ", ".join(part for part in (*self._rate(now, done), note) if part)
        if self._bar:
            self._bar.update(self._task, completed=done, total=self.total, note=printable(text))
        elif now - self._shown >= _SECONDS_BETWEEN_LINES or (done == self.total and not self.transient):
            self._shown = now
            of = f" of {self.total:,}" if self.total else ""
            say(f"{self.title}: {done:,}{of} {self.unit}{text and ', '}{text}")

    def _rate(self, now: float, done: int) -> tuple[str, str]:
        """Return the speed and the time left as text, empty where unknown."""
        gained, finished = done - self.start, done == self.total
        if now - self._marks[-1][0] >= 1.0:
            self._marks.append((now, gained))
        while len(self._marks) > 1 and now - self._marks[1][0] >= _SECONDS_OF_SPEED:
            self._marks.popleft()
        then, before = self._first_mark if finished else self._marks[0]
        if now - then < 0.5 or gained == before:
            return "", ""
        speed, left = (gained - before) / (now - then), ""
        # Earlier estimates of the time left are too uncertain.
        if self.total and not finished and 1000 * gained >= self.total - self.start:
            left = f"{duration(round((self.total - done) / speed))} left"
        return f"{speed:,.0f} {self.unit}/s" if speed >= 100 else f"{speed:.3g} {self.unit}/s", left


def duration(seconds: float) -> str:
    """Format a time in seconds for people.

    >>> duration(0.0123), duration(1.118), duration(59.6), duration(3723), duration(200_000)
    ('12.3 ms', '1.12 s', '1:00', '1:02:03', '2 d 7 h')
    """
    if 0 < seconds < 10:
        return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
    whole = round(seconds)
    if whole >= 86_400:
        return f"{whole // 86_400} d {whole % 86_400 // 3600} h"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def say(text: str) -> None:
    """Print a message to stderr if this process reports to the user."""
    if is_reporting():
        print(printable(text), file=sys.stderr, flush=True)


@contextmanager
def short_notices(parser: Parser) -> Iterator[None]:
    """Print each `Notice` as one line, with flags instead of Python arguments, and without its source location."""
    default = warnings.formatwarning

    def format_notice(message: Any, category: type[Warning], *location: Any, **options: Any) -> str:
        if not issubclass(category, Notice):
            return default(message, category, *location, **options)
        return printable(f"smoothcert: {name_flags(str(message), parser)}\n") if is_reporting() else ""

    warnings.formatwarning = format_notice
    try:
        yield
    finally:
        warnings.formatwarning = default


def _rich_bar(transient: bool) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Column

    console = Console(stderr=True)
    # Narrow terminals cut off the note, never the title and the count.
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(max(4, min(40, console.width // 6))),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[note]}", markup=False, table_column=Column(overflow="ignore")),
    )
    return Progress(*columns, console=console, transient=transient)
