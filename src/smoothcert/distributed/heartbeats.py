"""Heartbeats: every rank increments a counter in the ranks' key-value store; a rank whose counter stops is silent.

Each rank runs two threads. The first thread writes this rank's counter and reads the counters of the watched ranks:
rank 0 watches all ranks, the others watch rank 0. This thread blocks if the store does not answer, regardless of the
store's timeout. The second thread, the guard, makes no store calls. It ends the process if the main thread might be
waiting for a silent rank in a call that no exception can interrupt: a collective, a CUDA synchronization, or a store
call.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

from smoothcert.errors import UsageError

SECONDS_BETWEEN_BEATS = 1.0
_SECONDS_BETWEEN_CHECKS = 0.25
_SECONDS_TO_START = 600.0
_SECONDS_TO_END = 15.0  # time for the main thread to end the process normally after an error
_SECONDS_TO_BE_READ = 2.0  # time for the other ranks to learn that rank 0 reports an error


def rank_timeout() -> float:
    """Return the seconds without a heartbeat after which a rank counts as dead: $SMOOTHCERT_RANK_TIMEOUT or 60."""
    text = os.environ.get("SMOOTHCERT_RANK_TIMEOUT", "60")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageError(f"Expected `SMOOTHCERT_RANK_TIMEOUT` to be a finite number of seconds > 0, but got {text!r}.")
    return seconds


def under_torchrun() -> bool:
    """Return True if torchrun started this process. Torchrun then hosts the store and ends all ranks when one fails."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


class Heartbeats:
    """This rank's heartbeat, and the time since the last heartbeat of each watched rank.

    A rank also watches itself: if it cannot read its own heartbeat back, the store does not answer. Silence is counted
    in steps of the guard, not by a clock, so a job that is suspended and continued (Ctrl-Z and `fg`) survives.
    """

    def __init__(self, rank: int, size: int, store: Any) -> None:
        self.rank, self.limit = rank, rank_timeout()
        self.uses_collectives = False  # if True, no rank can continue without the others
        self.failure_is_known = False
        self._store = store.clone()  # a new connection, since calls on the same connection wait for each other
        not_started = min(0.0, self.limit - _SECONDS_TO_START)
        self._silence = dict.fromkeys(range(size) if rank == 0 else (0, rank), not_started)
        self._beats: dict[int, bytes] = {}
        self._left: set[int] = set()
        self._seconds_since_failure = 0.0
        self._over, self._report = threading.Event(), threading.Lock()

    def start(self) -> Callable[[], None]:
        """Start the heartbeat and guard threads; they end with the process, or when the returned function is called."""
        threads = [threading.Thread(target=target, daemon=True) for target in (self._beat, self._guard)]
        for thread in threads:
            thread.start()

        def stop() -> None:
            self._over.set()
            threads[0].join(SECONDS_BETWEEN_BEATS)  # waits this long only if the store does not answer

        return stop

    def silent(self) -> list[int]:
        """Return the watched ranks that have had no heartbeat for longer than the limit."""
        return [rank for rank, seconds in self._silence.items() if seconds > self.limit]

    def dispensable(self) -> list[int]:
        """Return the silent ranks whose work other ranks can take over.

        Collectives and torchrun wait for every rank. If the job uses either, only ranks that have left the job are
        dispensable; if any other rank is silent, the job ends.
        """
        all_needed = self.uses_collectives or under_torchrun()
        return [rank for rank in self.silent() if rank != self.rank and (rank in self._left or not all_needed)]

    def silence_message(self, rank: int) -> str:
        """Return the error message about a silent rank."""
        return f"{self._name(rank)} has not responded for {self.limit:.0f} seconds; stopping."

    def claim_report(self) -> bool:
        """Return True on the first call only, so that only one of the two threads reports a silent rank."""
        return self._report.acquire(blocking=False)

    def exchange(self, number: int) -> None:
        """Write this rank's heartbeat and read the heartbeats of the watched ranks."""
        self._store.set(f"beat/{self.rank}", str(number))
        for rank in self._silence:
            key = f"beat/{rank}"
            beat = self._store.get(key) if self._store.check([key]) else b""
            if beat != self._beats.get(rank, b""):
                self._beats[rank], self._silence[rank] = beat, 0.0
            elif self._store.check([f"left/{rank}"]):
                self._left.add(rank)
        self.failure_is_known = self._store.check(["failed"])

    def add_silence(self, seconds: float) -> None:
        """Add `seconds` to each rank's time since its last heartbeat; `exchange` resets it on a new heartbeat."""
        for rank in self._silence:
            self._silence[rank] += seconds
        self._seconds_since_failure += seconds if self.failure_is_known else 0.0

    def reason_to_end(self) -> str | None:
        """Return an error message if the process must end ("" if another rank reports the error), else None."""
        silent = self.silent()
        if self.rank in silent or 0 in silent:
            return "" if self.failure_is_known else self.silence_message(min(silent))
        if self.uses_collectives and self._seconds_since_failure > _SECONDS_TO_END:
            return ""
        needed = sorted({*silent}.difference(self.dispensable()))
        return self.silence_message(needed[0]) if needed else None

    def _name(self, rank: int) -> str:
        if self.rank in self.silent():  # the store does not answer
            return "torchrun" if under_torchrun() else "Rank 0"
        return f"Rank {rank}"

    def _beat(self) -> None:
        for number in count():
            try:
                self.exchange(number)
            except RuntimeError:  # the store is gone; the guard notices
                return
            if self._over.wait(SECONDS_BETWEEN_BEATS):
                return

    def _guard(self) -> None:
        while not self._over.wait(_SECONDS_BETWEEN_CHECKS):
            self.add_silence(_SECONDS_BETWEEN_CHECKS)
            if (reason := self.reason_to_end()) is not None:
                self._end(reason)

    def _end(self, reason: str) -> None:
        if not self.claim_report():  # the main thread is already reporting the silent rank
            self._over.wait(_SECONDS_TO_END)
        elif reason:
            end_process(reason, self._tell_others if self.rank == 0 else None)
        if not self._over.is_set():
            os._exit(1)

    def _tell_others(self) -> None:
        with suppress(RuntimeError):
            self._store.set("failed", json.dumps({"rank": 0, "usage": False, "text": "another rank is silent"}))


def end_process(reason: str, before: Callable[[], None] | None = None) -> None:
    """Print a message and end the process, even if the main thread is blocked.

    `before`, if given, is called in a new thread, two seconds before the process ends.
    """
    with suppress(OSError, ValueError):
        sys.stderr.write(f"smoothcert: {reason}\n")
        sys.stderr.flush()
    if before:
        threading.Thread(target=before, daemon=True).start()  # the store might not answer
        time.sleep(_SECONDS_TO_BE_READ)
    os._exit(1)
