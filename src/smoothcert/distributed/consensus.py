"""How the ranks of a group agree: on what they work with, on what to do next, and on giving up.

All of it goes through the store, in small values, and nothing here waits for ever: every rank has a pulse, and one
whose pulse stops is taken for dead. An error of any rank is said once, by rank 0 where that can still speak.
"""

from __future__ import annotations

import json
import os
import pickle
import threading
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from smoothcert.distributed.ranks import PeerError, Ranks
from smoothcert.errors import SmoothcertError, UsageError

T = TypeVar("T")
_SECONDS_BETWEEN_BEATS = 1.0
_SECONDS_TO_START = 600.0
_SECONDS_TO_BE_HEARD = 5.0
_SECONDS_TO_APPEAR = 5.0
_SECONDS_BETWEEN_LOOKS = 0.02

ADVICE = {
    "code version": "install the same smoothcert on every node",
    "torch": "install the same torch on every node",
    "images": "every node needs the same files",
    "class folders": "every node needs the same files",
    "shared folder": "`--runs` or `--out` must lie in a folder that all nodes share",
}


def seconds_to_live() -> float:
    """Return after how long without a pulse a rank is dead: $SMOOTHCERT_RANK_TIMEOUT, or a minute."""
    try:
        return float(os.environ["SMOOTHCERT_RANK_TIMEOUT"])
    except (KeyError, ValueError):
        return 60.0


class Pulses:
    """When each rank was last seen alive, by this process's own clock."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks, self.began = ranks, time.monotonic()
        self._last: dict[int, tuple[bytes, float]] = {}

    def dead(self) -> list[int]:
        """Return the ranks without a pulse."""
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
            elif now - self._last[rank][1] > seconds_to_live():
                dead.append(rank)
        return dead


def watch_over(ranks: Ranks) -> Callable[[], None]:
    """Give this rank a pulse, which stops with the process, or when the returned function is called."""
    over = threading.Event()

    def beat() -> None:
        for number in count():
            try:
                ranks.store.set(f"beat/{ranks.rank}", str(number))
            except RuntimeError:  # the store is gone, and with it everyone who could look
                return
            if over.wait(_SECONDS_BETWEEN_BEATS):
                return

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()

    def stop() -> None:
        over.set()
        thread.join()

    return stop


def wait_for(ranks: Ranks, key: str, pulses: Pulses | None = None) -> bytes:
    """Return a value of the store once it is there; stop where a rank has failed or died before that."""
    pulses, looked, pause = pulses or Pulses(ranks), time.monotonic(), 1e-3
    while not _is_there(ranks, key):
        time.sleep(pause)
        pause = min(2 * pause, _SECONDS_BETWEEN_LOOKS)
        if time.monotonic() - looked > _SECONDS_BETWEEN_BEATS:
            looked = time.monotonic()
            check_peers(ranks)
            if dead := [rank for rank in pulses.dead() if rank != ranks.rank]:
                text = f"Rank {dead[0]} has not been heard of for {seconds_to_live():.0f} seconds; the work stops."
                if ranks.first:
                    raise SmoothcertError(text)
                raise PeerError(text) if 0 in dead else _said(text)
    return bytes(ranks.store.get(key))


def _is_there(ranks: Ranks, key: str) -> bool:
    try:
        return bool(ranks.store.check([key]))
    except RuntimeError as error:
        raise PeerError("the store that the ranks meet in is gone") from error


def check_peers(ranks: Ranks) -> None:
    """Raise what another rank has failed with, if one has."""
    if not _is_there(ranks, "failed"):
        return
    if not ranks.first:
        raise _said("another rank has failed")
    failed = json.loads(ranks.store.get("failed"))
    ranks.store.set("heard", "")
    kind = UsageError if failed["usage"] else SmoothcertError
    raise kind(f"On rank {failed['rank']}: {failed['text']}")


def _said(text: str) -> PeerError:
    error = PeerError(text)
    error.said = True
    return error


def depart(ranks: Ranks) -> None:
    """Leave the group; rank 0 waits a little for the others, which may have something to read in its store yet."""
    try:
        ranks.store.set(f"left/{ranks.rank}", "")
        end = time.monotonic() + _SECONDS_TO_BE_HEARD
        others = [f"left/{rank}" for rank in range(1, ranks.size)] if ranks.first else []
        while time.monotonic() < end and not all(ranks.store.check([key]) for key in others):
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    except RuntimeError:  # the store is gone
        pass


def is_said(ranks: Ranks, error: PeerError) -> bool:
    """Whether rank 0 tells the user what became of the group."""
    try:
        return error.said or bool(ranks.store.check(["failed"]))
    except RuntimeError:
        return False


def tell(ranks: Ranks, error: SmoothcertError) -> bool:
    """Tell the others of an error here; return whether rank 0 has heard it, and so will say it."""
    report = {"rank": ranks.rank, "usage": isinstance(error, UsageError), "text": str(error)}
    try:
        if not ranks.store.check(["failed"]):
            ranks.store.set("failed", json.dumps(report))
        if ranks.first:  # it speaks for all, who may well have failed in the same way
            ranks.store.set("heard", "")
            return False
        end = time.monotonic() + _SECONDS_TO_BE_HEARD
        while time.monotonic() < end:
            if ranks.store.check(["heard"]):
                time.sleep(1.0)  # a launcher stops everyone when the first is gone; rank 0 speaks before that
                return True
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    except RuntimeError:
        pass
    return False


def decide(ranks: Ranks, value: T) -> T:
    """Return rank 0's value to all."""
    if ranks.size == 1:
        return value
    key = f"decided/{next(ranks.numbers)}"
    if ranks.first:
        ranks.store.set(key, pickle.dumps(value))
        return value
    return pickle.loads(wait_for(ranks, key))  # type: ignore[no-any-return]


def settle(ranks: Ranks, facts: Mapping[str, Any]) -> None:
    """Wait for all ranks, and refuse to go on where what they work with is not the same.

    The name of a fact is what the error calls it; `ADVICE` may have more to say on it.
    """
    if ranks.size == 1:
        return
    here = f"settled/{next(ranks.numbers)}"
    plain = {name: str(value) for name, value in facts.items()}
    ranks.store.set(f"{here}/{ranks.rank}", json.dumps(plain))
    if not ranks.first:
        wait_for(ranks, f"{here}/well")
        return
    pulses = Pulses(ranks)
    for rank in range(1, ranks.size):
        theirs = json.loads(wait_for(ranks, f"{here}/{rank}", pulses))
        for name in sorted(plain.keys() | theirs.keys()):
            if plain.get(name) != theirs.get(name):
                advice = ADVICE.get(name, "give the same command on every node")
                both = _difference(str(plain.get(name)), str(theirs.get(name)), rank)
                raise UsageError(f"The ranks do not agree on {name}: {both}; {advice}.")
    ranks.store.set(f"{here}/well", "")


def _difference(ours: str, theirs: str, rank: int) -> str:
    """Say what differs; of long lists the first words that only one has.

    >>> _difference("0", "3", 1)
    '0 on rank 0, 3 on rank 1'
    >>> _difference(" ".join(map(str, range(99))), " ".join(map(str, range(98))), 2)
    '98 on rank 0 alone, not on rank 2'
    """
    only_ours, only_theirs = (set(a.split()) - set(b.split()) for a, b in ((ours, theirs), (theirs, ours)))
    if max(len(ours), len(theirs)) < 100 or not only_ours | only_theirs:
        return f"{ours} on rank 0, {theirs} on rank {rank}"
    has, lacks, words = (0, rank, only_ours) if only_ours else (rank, 0, only_theirs)
    return f"{', '.join(sorted(words)[:3])} on rank {has} alone, not on rank {lacks}"


def check_shared(ranks: Ranks, folder: Path) -> None:
    """Refuse a folder that is not the same one on every node."""
    if ranks.size == 1:
        return
    token = decide(ranks, f".shared-{os.urandom(6).hex()}")
    mark = folder / token
    if ranks.first:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            mark.touch()
        except OSError as error:
            raise SmoothcertError(f"{folder} cannot be written ({error.strerror or error}).") from error
    try:
        decide(ranks, True)  # the mark is there from here on
        settle(ranks, {"shared folder": folder.name if _appears(mark) else f"another {folder.name}"})
    finally:
        if ranks.first:
            mark.unlink(missing_ok=True)


def _appears(mark: Path) -> bool:
    """Whether a file is there, or comes to be within a few seconds: network file systems show new ones late."""
    end = time.monotonic() + _SECONDS_TO_APPEAR
    while not mark.exists():
        if time.monotonic() > end:
            return False
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    return True
