"""Errors of other ranks: each is reported to the user once, by rank 0 if it can still print."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from smoothcert.distributed.heartbeats import under_torchrun
from smoothcert.distributed.ranks import PeerError
from smoothcert.distributed.wire import decode, encode
from smoothcert.errors import SmoothcertError, UsageError

if TYPE_CHECKING:
    from smoothcert.distributed.launched import LaunchedRanks

_SECONDS_TO_BE_HEARD = 5.0
_SECONDS_BETWEEN_CHECKS = 0.02


@contextmanager
def store_calls() -> Iterator[None]:
    """Raise PeerError if the store has closed its connections."""
    try:
        yield
    except RuntimeError as error:
        host = "torchrun" if under_torchrun() else "Rank 0"
        raise PeerError(f"{host}, which hosts the ranks' key-value store, has ended.") from error


def raise_if_peer_failed(ranks: LaunchedRanks) -> None:
    """Raise if another rank has failed; on rank 0, the error contains the message of the failed rank."""
    if not ranks.flag_is_set("failed"):
        return
    failure = decode(ranks.store.get("failed"))
    if not ranks.first or failure["rank"] == 0:
        reported = PeerError("another rank has failed")
        reported.reported = True
        raise reported
    ranks.store.set("heard", "")
    kind = UsageError if failure["usage"] else SmoothcertError
    raise kind(f"On rank {failure['rank']}: {failure['text']}")


def rank0_reports(ranks: LaunchedRanks, error: SmoothcertError) -> bool:
    """Tell the other ranks about this rank's error. Return True if another rank reports the problem to the user."""
    if isinstance(error, PeerError):
        try:
            return error.reported or ranks.heartbeats.failure_is_known or bool(ranks.store.check(["failed"]))
        except RuntimeError:
            return False
    failure = {"rank": ranks.rank, "usage": isinstance(error, UsageError), "text": str(error)}
    try:
        if not ranks.store.check(["failed"]):
            ranks.store.set("failed", encode(failure))
        if ranks.first:  # rank 0 reports its own error; the others may have failed in the same way
            ranks.store.set("heard", "")
            return False
        end = time.monotonic() + _SECONDS_TO_BE_HEARD
        while time.monotonic() < end:
            if ranks.store.check(["heard"]):
                time.sleep(1.0)  # a launcher stops all ranks when one ends; let rank 0 print before that
                return True
            time.sleep(_SECONDS_BETWEEN_CHECKS)
    except RuntimeError:
        pass
    return False


def leave_group(ranks: LaunchedRanks) -> None:
    """Leave the group. Rank 0 waits up to five seconds for the others, which may still read from its store."""
    try:
        ranks.store.set(f"left/{ranks.rank}", "")
        end = time.monotonic() + _SECONDS_TO_BE_HEARD
        others = [f"left/{rank}" for rank in range(1, ranks.size)] if ranks.first else []
        while time.monotonic() < end and not all(ranks.store.check([key]) for key in others):
            time.sleep(_SECONDS_BETWEEN_CHECKS)
    except RuntimeError:  # the store is gone
        pass
