"""Decide after which steps a run reports progress or stops. All ranks do so after the same steps."""

from __future__ import annotations

import time

from smoothcert.distributed.ranks import Ranks
from smoothcert.runtime.deadline import INTERRUPTED

_SECONDS_BETWEEN_REPORTS = 1.0


class Clock:
    """Decides after which steps to report: about once a second by rank 0's clock, after the same steps on all ranks."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks, self._reported = ranks, time.monotonic()
        self._steps, self._next = 0, 1
        self._key = ranks.new_flag("interrupted")

    def tick(self, reason: str, due: bool) -> tuple[bool, str]:
        """Count a step. Return whether a report is due, and the reason to stop after this step ("" to continue).

        `reason` is this rank's reason to stop; `due` forces a report. Ranks exchange messages only about once a second;
        the number of steps until the next exchange is estimated from the previous second.
        """
        self._steps += 1
        if not due and self._steps < self._next:
            return False, ""
        now, reason = time.monotonic(), self._reason_of_any_rank(reason)
        stride = 1 if self.ranks.size == 1 else max(1, int(self._steps / max(now - self._reported, 1e-3)))
        report = due or bool(reason) or now - self._reported >= _SECONDS_BETWEEN_REPORTS
        report, reason, self._next = self.ranks.broadcast_from_rank0((report, reason, stride))
        if not report:
            self._next += self._steps
            return False, ""
        self._reported, self._steps = now, 0
        return True, reason

    def _reason_of_any_rank(self, reason: str) -> str:
        """Return `reason` or, on rank 0, INTERRUPTED if another rank was interrupted. Other ranks tell rank 0."""
        if self.ranks.first:
            return INTERRUPTED if self.ranks.flag_is_set(self._key) else reason
        if reason == INTERRUPTED:
            self.ranks.set_flag(self._key)
        return reason
