"""Time limits: work on borrowed machines stops at a moment when nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from smoothcert.errors import SmoothcertError


class OutOfTimeError(SmoothcertError):
    """The time limit was reached; the work goes on from what is saved when the same command is given again."""


class Deadline:
    """A moment some seconds from now, or never."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float | None:
        """Seconds until then, not below 0; None for never."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether it is too late."""
        return self.left == 0.0

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
