"""Queue of numbered work items and their results, in the ranks' key-value store.

Rank 0 takes part in the work and yields the results in order. The unfinished items of a rank that dies are queued
again; processing an item twice gives the same result. If rank 0 dies, the job ends; the same command resumes the work.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import torch.distributed as dist

from smoothcert.distributed.peer_errors import raise_if_peer_failed, store_calls
from smoothcert.distributed.wire import decode, encode
from smoothcert.errors import Notice

if TYPE_CHECKING:
    from smoothcert.distributed.launched import LaunchedRanks

T = TypeVar("T")
_SECONDS_BETWEEN_CHECKS = 0.02
_SECONDS_BETWEEN_HEARTBEAT_CHECKS = 2.0


def map_in_order(
    ranks: LaunchedRanks, count: int, work: Callable[[int], T], restore: Callable[[Any], T] | None = None
) -> Iterator[T]:
    """Yield work(0), work(1), ... in this order on rank 0; other ranks do their share and yield nothing.

    Results are sent as JSON, and `restore`, if given, rebuilds them from the decoded JSON. No rank returns before all
    items are done.
    """
    queue = _Queue(ranks, f"queue/{next(ranks.numbers)}", count)
    if ranks.first:
        for result in queue.lead(work):
            value = decode(result)
            yield restore(value) if restore else value
    else:
        queue.serve(work)


class _Queue:
    """Queue of tickets 0, 1, ...: the first `items` tickets stand for the items, later ones for items to be redone."""

    def __init__(self, ranks: LaunchedRanks, name: str, items: int) -> None:
        self.ranks, self.items = ranks, items
        self._store = dist.PrefixStore(name, ranks.store)  # type: ignore[attr-defined]
        self._redone: list[int] = []  # items that rank 0 queued again, for ticket numbers >= `items`
        self._reported = set[int]()
        self._checked = time.monotonic()
        self._owners: dict[int, int] = {}
        self._results: dict[int, str | bytes] = {}

    def lead(self, work: Callable[[int], object]) -> Iterator[str | bytes]:
        """Process items as rank 0, and yield all results in order, as JSON; then end the work of the other ranks."""
        ticket, given = self._draw_ticket(), 0
        while given < self.items:
            item = self._item(ticket)
            if item is not None:
                if item >= given and item not in self._results and not self._has(f"result/{item}"):
                    self._results[item] = encode(work(item))
                ticket = self._draw_ticket()
            while given < self.items and (result := self._take(given)) is not None:
                yield result
                given += 1
            self._requeue_lost_items(given)
            if item is None:
                time.sleep(_SECONDS_BETWEEN_CHECKS)
            raise_if_peer_failed(self.ranks)
        self._set("end", "")

    def serve(self, work: Callable[[int], object]) -> None:
        """Process items as a rank other than 0, until rank 0 says that all are done."""
        ticket = self._draw_ticket()
        while not self._has("end"):
            item = self._item(ticket)
            if item is None:
                time.sleep(_SECONDS_BETWEEN_CHECKS)
                raise_if_peer_failed(self.ranks)
                continue
            self._set(f"result/{item}", encode(work(item)))
            ticket = self._draw_ticket()

    def _draw_ticket(self) -> int:
        ticket = self._call("add", "next", 1) - 1
        self._set(f"owner/{ticket}", str(self.ranks.rank))
        return int(ticket)

    def _item(self, ticket: int) -> int | None:
        """Return the item that a ticket stands for, or None if it has no item yet."""
        if ticket < self.items:
            return ticket
        if self.ranks.first:
            again = ticket - self.items
            return self._redone[again] if again < len(self._redone) else None
        key = f"again/{ticket}"
        return int(self._get(key)) if self._has(key) else None

    def _take(self, item: int) -> str | bytes | None:
        """Return an item's result, or None if there is none yet. A returned result is deleted, also from the store."""
        if item in self._results:
            return self._results.pop(item)
        key = f"result/{item}"
        if not self._has(key):
            return None
        result = self._get(key)
        self._call("delete_key", key)
        return result

    def _requeue_lost_items(self, given: int) -> None:
        """Issue a new ticket for every unfinished item of a dead rank."""
        if time.monotonic() - self._checked < _SECONDS_BETWEEN_HEARTBEAT_CHECKS:
            return
        self._checked = time.monotonic()
        dead = self._dead_ranks()
        drawn = int(self._call("add", "next", 0)) if dead else 0
        for ticket in range(given, min(drawn, self.items + len(self._redone))):
            item = ticket if ticket < self.items else self._redone[ticket - self.items]
            if item < given or item in self._results or self._owner(ticket) not in dead or self._has(f"result/{item}"):
                continue
            self._owners[ticket] = -1  # replaced by a new ticket
            self._redone.append(item)
            self._set(f"again/{self.items + len(self._redone) - 1}", str(item))

    def _dead_ranks(self) -> set[int]:
        """Return the dead ranks whose work other ranks take over, and warn about each of them once."""
        beats = self.ranks.heartbeats
        dead = {*beats.dispensable()}
        for rank in sorted(dead - self._reported):
            text = f"Rank {rank} has not responded for {beats.limit:.0f} seconds; other ranks take over its work."
            warnings.warn(text, Notice, stacklevel=2)
        self._reported |= dead
        return dead

    def _owner(self, ticket: int) -> int:
        """Return the rank that drew a ticket. If none is recorded, assume a dead rank, or -1 if all are alive."""
        if ticket not in self._owners:
            key = f"owner/{ticket}"
            if not self._has(key):
                return min(self._dead_ranks(), default=-1)
            self._owners[ticket] = int(self._get(key))
        return self._owners[ticket]

    def _has(self, key: str) -> bool:
        return bool(self._call("check", [key]))

    def _get(self, key: str) -> bytes:
        return bytes(self._call("get", key))

    def _set(self, key: str, value: str) -> None:
        self._call("set", key, value)

    def _call(self, name: str, *arguments: object) -> Any:
        with store_calls():
            return getattr(self._store, name)(*arguments)
