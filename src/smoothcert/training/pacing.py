"""When ranks that train together look at what they have done, and stop."""

from __future__ import annotations

import time

from smoothcert.distributed.ranks import Ranks
from smoothcert.runtime.deadline import INTERRUPTED

_SECONDS_BETWEEN_LOOKS = 1.0


class Clock:
    """Says when to look at a run, on all ranks at the same step: about once a second, by rank 0's time."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks, self._looked = ranks, time.monotonic()
        self._steps, self._next = 0, 1
        self._key = ranks.new_flag("interrupted")

    def tick(self, reason: str, due: bool) -> tuple[bool, str]:
        """Count a step; return whether it is one to look at, and the reason to stop at it, if there is one.

        Several ranks only ask rank 0 after as many steps as it took, last time, to fill a second.
        """
        self._steps += 1
        if not due and self._steps < self._next:
            return False, ""
        now, reason = time.monotonic(), self._of_all(reason)
        stride = 1 if self.ranks.size == 1 else max(1, int(self._steps / max(now - self._looked, 1e-3)))
        look = due or bool(reason) or now - self._looked >= _SECONDS_BETWEEN_LOOKS
        look, reason, self._next = self.ranks.broadcast_from_rank0((look, reason, stride))
        if not look:
            self._next += self._steps
            return False, ""
        self._looked, self._steps = now, 0
        return True, reason

    def _of_all(self, reason: str) -> str:
        """Let rank 0 know of an interrupt of another rank: time is rank 0's, but a signal may reach any."""
        if self.ranks.first:
            return INTERRUPTED if self.ranks.flag_is_set(self._key) else reason
        if reason == INTERRUPTED:
            self.ranks.set_flag(self._key)
        return reason
