"""Agreement among ranks, through small values in a shared key-value store.

While a rank waits for another rank, it raises an error if any rank fails, or if the heartbeat of a rank that it watches
(see `heartbeats`) stops.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from smoothcert.distributed.peer_errors import raise_if_peer_failed
from smoothcert.distributed.ranks import PeerError
from smoothcert.distributed.wire import decode, encode
from smoothcert.errors import SmoothcertError, UsageError

if TYPE_CHECKING:
    from smoothcert.distributed.launched import LaunchedRanks

T = TypeVar("T")
_SECONDS_TO_APPEAR = 5.0
_SECONDS_BETWEEN_CHECKS = 0.02
_SECONDS_BETWEEN_PEER_CHECKS = 0.5

ADVICE = {
    "code version": "install the same smoothcert on every node",
    "torch": "install the same torch on every node",
    "images": "every node needs the same files",
    "training data": "every node needs the same data",
    "class folders": "every node needs the same files",
    "shared folder": "choose a folder that all nodes share",
}


def wait_for_key(ranks: LaunchedRanks, key: str) -> Any:
    """Wait for a key to appear in the store and return its value; raise if a rank fails or dies first."""
    checked, pause = time.monotonic(), 1e-3
    while not ranks.flag_is_set(key):
        time.sleep(pause)
        pause = min(2 * pause, _SECONDS_BETWEEN_CHECKS)
        if time.monotonic() - checked > _SECONDS_BETWEEN_PEER_CHECKS:
            checked = time.monotonic()
            raise_if_peer_failed(ranks)
            _raise_if_silent(ranks)
    return decode(ranks.store.get(key))


def _raise_if_silent(ranks: LaunchedRanks) -> None:
    """Raise if the heartbeat of a watched rank has stopped, unless the guard thread is already reporting this."""
    silent = ranks.heartbeats.silent()
    if silent and ranks.heartbeats.claim_report():
        raise (SmoothcertError if ranks.first else PeerError)(ranks.heartbeats.silence_message(silent[0]))


def broadcast_from_rank0(ranks: LaunchedRanks, value: T) -> T:
    """Return rank 0's value on every rank. On the other ranks, tuples become lists."""
    key = f"broadcast/{next(ranks.numbers)}"
    if ranks.first:
        ranks.store.set(key, encode(value))
        return value
    return wait_for_key(ranks, key)  # type: ignore[no-any-return]


def require_same_on_all_ranks(ranks: LaunchedRanks, facts: Mapping[str, Any]) -> None:
    """Wait for all ranks, and raise if a value in `facts` differs between them; the error adds `ADVICE`."""
    here = f"same/{next(ranks.numbers)}"
    ours = {name: str(value) for name, value in facts.items()}
    ranks.store.set(f"{here}/{ranks.rank}", encode(ours))
    if not ranks.first:
        wait_for_key(ranks, f"{here}/agreed")
        return
    for rank in range(1, ranks.size):
        theirs = wait_for_key(ranks, f"{here}/{rank}")
        for name in sorted(ours.keys() | theirs.keys()):
            if ours.get(name) != theirs.get(name):
                advice = ADVICE.get(name, "run the same command on every node")
                difference = _difference(str(ours.get(name)), str(theirs.get(name)), rank)
                raise UsageError(f"The ranks do not agree on {name}: {difference}; {advice}.")
    ranks.store.set(f"{here}/agreed", encode(True))


def _difference(ours: str, theirs: str, rank: int) -> str:
    """Describe how two ranks' values differ. For long values, name up to three words that only one of the ranks has.

    >>> _difference("0", "3", 1)
    '0 on rank 0, 3 on rank 1'
    >>> _difference(" ".join(map(str, range(99))), " ".join(map(str, range(98))), 2)
    '98 on rank 0, missing on rank 2'
    """
    only_ours, only_theirs = (set(a.split()) - set(b.split()) for a, b in ((ours, theirs), (theirs, ours)))
    if max(len(ours), len(theirs)) < 100 or not only_ours | only_theirs:
        return f"{ours} on rank 0, {theirs} on rank {rank}"
    has, lacks, words = (0, rank, only_ours) if only_ours else (rank, 0, only_theirs)
    return f"{', '.join(sorted(words)[:3])} on rank {has}, missing on rank {lacks}"


def require_shared_folder(ranks: LaunchedRanks, folder: Path) -> None:
    """Raise if a file that rank 0 creates in `folder` does not appear on every rank."""
    marker = folder / broadcast_from_rank0(ranks, f".shared-{os.urandom(6).hex()}")
    if ranks.first:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            marker.touch()
        except OSError as error:
            raise SmoothcertError(f"{folder} cannot be written ({error.strerror or error}).") from error
    try:
        ranks.wait_for_rank0()
        place = folder.name if _appears(marker) else f"another {folder.name}"
        require_same_on_all_ranks(ranks, {"shared folder": place})
    finally:
        if ranks.first:
            marker.unlink(missing_ok=True)


def _appears(path: Path) -> bool:
    """Return True if a file appears within a few seconds: network file systems show new files with a delay."""
    end = time.monotonic() + _SECONDS_TO_APPEAR
    while not path.exists():
        if time.monotonic() > end:
            return False
        time.sleep(_SECONDS_BETWEEN_CHECKS)
    return True
