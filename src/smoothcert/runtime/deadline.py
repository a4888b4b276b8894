"""Time limits and interrupts that stop work between two steps, when everything can be saved."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from smoothcert.errors import SmoothcertError
from smoothcert.runtime.interrupts import raise_interrupt

TIME_IS_UP, INTERRUPTED = "time is up", "interrupted"


class OutOfTimeError(SmoothcertError):
    """Error raised when the time limit has passed. Everything is saved; the same command resumes the work."""


class Deadline:
    """A time limit in seconds from now, or no limit.

    An interrupt inside `heeding_interrupts` makes the deadline pass at once.
    """

    def __init__(self, seconds: float | None) -> None:
        endless = seconds is None or seconds > threading.TIMEOUT_MAX
        self._end = None if endless else time.monotonic() + float(seconds or 0.0)
        self.interrupted = False

    @property
    def left(self) -> float | None:
        """Seconds left, at least 0; None if there is no limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    @property
    def reason(self) -> str:
        """Reason to stop: `TIME_IS_UP`, `INTERRUPTED`, or empty before the deadline."""
        if self.interrupted:
            return INTERRUPTED
        return TIME_IS_UP if self.left == 0.0 else ""

    def check(self) -> None:
        """Raise OutOfTimeError after the deadline."""
        if self.reason:
            raise OutOfTimeError("Time is up.")

    def watching(self, on_progress: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a progress callback that raises OutOfTimeError after the deadline, unless all work is done."""

        def watch(progress: Any) -> None:
            on_progress(progress)
            if progress.done < progress.total:
                self.check()

        return watch

    @contextmanager
    def heeding_interrupts(self) -> Iterator[None]:
        """Delay the first interrupt: the deadline passes at once, and KeyboardInterrupt is raised when the block ends.

        A second interrupt raises KeyboardInterrupt immediately. SIGINT and SIGTERM are handled only in the main thread
        and only if they would raise KeyboardInterrupt; a program's own signal handlers stay in place.
        """
        received = list[int]()  # signals to this process; another rank may set `interrupted` as well

        def handle(number: int, frame: Any) -> None:
            if received:
                signal.default_int_handler(number, frame)
            received.append(number)
            self.interrupted = True

        signals = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
        before = {number: signal.getsignal(number) for number in signals}
        handled = [n for n, handler in before.items() if handler in (signal.default_int_handler, raise_interrupt)]
        message = ""
        try:
            for number in handled:
                signal.signal(number, handle)
            yield
        except SmoothcertError as error:
            if not self.interrupted:
                raise
            message = str(error)
        finally:
            for number in handled:
                signal.signal(number, before[number])
        if self.interrupted:
            raise KeyboardInterrupt(message)
