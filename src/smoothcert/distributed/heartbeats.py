"""Signs of life: every rank increments a counter in the store, and one whose counter stands still is dead."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smoothcert.distributed.launched import LaunchedRanks

SECONDS_BETWEEN_BEATS = 1.0
_SECONDS_TO_START = 600.0


def rank_timeout() -> float:
    """Return the seconds without a heartbeat after which a rank counts as dead: $SMOOTHCERT_RANK_TIMEOUT, or 60."""
    try:
        return float(os.environ["SMOOTHCERT_RANK_TIMEOUT"])
    except (KeyError, ValueError):
        return 60.0


class Heartbeats:
    """Last heartbeat of every rank, by this process's own clock."""

    def __init__(self, ranks: LaunchedRanks) -> None:
        self.ranks, self.began = ranks, time.monotonic()
        self._last: dict[int, tuple[bytes, float]] = {}

    def dead(self) -> list[int]:
        """Return the ranks without a heartbeat."""
        now, dead = time.monotonic(), []
        for rank in range(self.ranks.size):
            key = f"beat/{rank}"
            if not self.ranks.store.check([key]):
                if now - self.began > _SECONDS_TO_START:
                    dead.append(rank)
                continue
            beat = self.ranks.store.get(key)
            if rank not in self._last or self._last[rank][0] != beat:
                self._last[rank] = beat, now
            elif now - self._last[rank][1] > rank_timeout():
                dead.append(rank)
        return dead


def start_heartbeat(ranks: LaunchedRanks) -> Callable[[], None]:
    """Start this rank's heartbeat; it ends with the process, or when the returned function is called."""
    over = threading.Event()

    def beat() -> None:
        for number in count():
            try:
                ranks.store.set(f"beat/{ranks.rank}", str(number))
            except RuntimeError:  # the store is gone, and with it everyone who could look
                return
            if over.wait(SECONDS_BETWEEN_BEATS):
                return

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()

    def stop() -> None:
        over.set()
        thread.join()

    return stop
