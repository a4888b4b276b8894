"""When ranks that train together look at what they have done, and stop."""

from __future__ import annotations

import time

from smoothcert.engine.agreement import decide
from smoothcert.engine.ranks import Ranks

_SECONDS_BETWEEN_LOOKS = 1.0


class Clock:
    """Says when to look at a run, on all ranks at the same step: about once a second, by rank 0's time."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks, self._looked = ranks, time.monotonic()
        self._steps, self._next = 0, 1

    def tick(self, out_of_time: bool, due: bool) -> tuple[bool, bool]:
        """Count a step; return whether it is one to look at, and whether the run's time is up.

        Several ranks only ask rank 0 after as many steps as it took, last time, to fill a second.
        """
        self._steps += 1
        if not due and self._steps < self._next:
            return False, False
        now = time.monotonic()
        stride = 1 if self.ranks.size == 1 else max(1, int(self._steps / max(now - self._looked, 1e-3)))
        look = due or out_of_time or now - self._looked >= _SECONDS_BETWEEN_LOOKS
        look, stop, self._next = decide(self.ranks, (look, out_of_time, stride))
        if not look:
            self._next += self._steps
            return False, False
        self._looked, self._steps = now, 0
        return True, stop
