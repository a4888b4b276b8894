"""Time limits and interrupts: work stops at a moment when nothing is lost."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from smoothcert.errors import SmoothcertError

TIME_IS_UP, INTERRUPTED = "time is up", "interrupted"


class OutOfTimeError(SmoothcertError):
    """The time limit was reached; the work goes on from what is saved when the same command is given again."""


class Deadline:
    """A moment some seconds from now, or never; an interrupt that is heeded brings it about at once."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds
        self.interrupted = False

    @property
    def left(self) -> float | None:
        """Seconds until then, not below 0; None for never."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    @property
    def reason(self) -> str:
        """Why it is too late; empty while it is not."""
        if self.interrupted:
            return INTERRUPTED
        return TIME_IS_UP if self.left == 0.0 else ""

    @property
    def passed(self) -> bool:
        """Whether it is too late."""
        return bool(self.reason)

    def check(self) -> None:
        """Stop if it is too late."""
        if self.passed:
            raise OutOfTimeError("Time is up.")

    def watching(self, on_progress: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a callback that stops after the first part of some work that ends too late, unless it was the last."""

        def watch(progress: Any) -> None:
            on_progress(progress)
            if progress.done < progress.total:
                self.check()

        return watch

    @contextmanager
    def heeding_interrupts(self) -> Iterator[None]:
        """Have the first interrupt only bring the deadline about; it is raised when the block ends, a second at once.

        That goes for the signals that raise KeyboardInterrupt, and in the main thread alone: no other gets signals.
        Whatever else a program does on a signal is left as it is.
        """
        heard = list[int]()  # here; the deadline may be brought about by an interrupt of another rank

        def heed(number: int, frame: Any) -> None:
            if heard:
                signal.default_int_handler(number, frame)
            heard.append(number)
            self.interrupted = True

        signals = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
        heeded = [number for number in signals if signal.getsignal(number) is signal.default_int_handler]
        told = ""
        try:
            for number in heeded:
                signal.signal(number, heed)
            yield
        except SmoothcertError as error:
            if not self.interrupted:
                raise
            told = str(error)
        finally:
            for number in heeded:
                signal.signal(number, signal.default_int_handler)
        if self.interrupted:
            raise KeyboardInterrupt(told)
