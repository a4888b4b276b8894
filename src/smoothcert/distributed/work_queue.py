"""Sharing work out over ranks as they become free: a queue of numbered items in the store, with their results.

Rank 0 works along and hands the results on in order. An item whose rank has died is put into the queue once more; done
twice, it has the same result. The death of rank 0 ends the work: what it has written is there, and the same command
goes on from it.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from smoothcert.distributed.consensus import Pulses, check_peers
from smoothcert.distributed.ranks import PeerError, Ranks, below

T = TypeVar("T")
_SECONDS_BETWEEN_LOOKS = 0.02
_SECONDS_BETWEEN_PULSES = 2.0


def share_out(ranks: Ranks, items: int, work: Callable[[int], T]) -> Iterator[T]:
    """Yield work(0), work(1), ... in this order on rank 0; other ranks do their share and yield nothing.

    Nobody leaves before all is done.
    """
    if ranks.size == 1:
        yield from map(work, range(items))
        return
    queue = _Queue(ranks, f"queue/{next(ranks.numbers)}", items)
    if ranks.first:
        yield from queue.conduct(work)
        queue.close()
    else:
        queue.serve(work)


class _Queue:
    """Tickets 0, 1, ... stand for items: the first ones for the items themselves, later ones for items to be redone."""

    def __init__(self, ranks: Ranks, name: str, items: int) -> None:
        self.ranks, self.items, self._store = ranks, items, below(ranks.store, name)
        self._redone: list[int] = []  # what rank 0 has put in again: the items of tickets from `items` on
        self._pulses = Pulses(ranks)
        self._felt = time.monotonic()
        self._owners: dict[int, int] = {}
        self._results: dict[int, bytes] = {}

    def conduct(self, work: Callable[[int], T]) -> Iterator[T]:
        """Work, as rank 0, and yield every result in order."""
        ticket, given = self._draw(), 0
        while given < self.items:
            item = self._item(ticket)
            if item is not None:
                if item >= given and item not in self._results and not self._has(f"result/{item}"):
                    self._results[item] = pickle.dumps(work(item))
                ticket = self._draw()
            while given < self.items and (result := self._take(given)) is not None:
                yield pickle.loads(result)
                given += 1
            self._put_in_again(given)
            if item is None:
                time.sleep(_SECONDS_BETWEEN_LOOKS)
            check_peers(self.ranks)

    def serve(self, work: Callable[[int], T]) -> None:
        """Work, as another rank, until rank 0 says that all is done."""
        ticket = self._draw()
        while not self._has("end"):
            item = self._item(ticket)
            if item is None:
                time.sleep(_SECONDS_BETWEEN_LOOKS)
                check_peers(self.ranks)
                continue
            self._set(f"result/{item}", pickle.dumps(work(item)))
            ticket = self._draw()

    def close(self) -> None:
        """Let the others go."""
        self._set("end", b"")

    def _draw(self) -> int:
        ticket = self._call("add", "next", 1) - 1
        self._set(f"owner/{ticket}", str(self.ranks.rank).encode())
        return int(ticket)

    def _item(self, ticket: int) -> int | None:
        """Return the item of a ticket, or None while it stands for nothing."""
        if ticket < self.items:
            return ticket
        if self.ranks.first:
            again = ticket - self.items
            return self._redone[again] if again < len(self._redone) else None
        key = f"again/{ticket}"
        return int(self._get(key)) if self._has(key) else None

    def _take(self, item: int) -> bytes | None:
        """Return a result and forget it, here and in the store."""
        if item in self._results:
            return self._results.pop(item)
        key = f"result/{item}"
        if not self._has(key):
            return None
        result = self._get(key)
        self._call("delete_key", key)
        return result

    def _put_in_again(self, given: int) -> None:
        """Issue a new ticket for every item whose rank has died before it was done."""
        if time.monotonic() - self._felt < _SECONDS_BETWEEN_PULSES:
            return
        self._felt = time.monotonic()
        dead = set(self._pulses.dead())
        drawn = int(self._call("add", "next", 0)) if dead else 0
        for ticket in range(given, min(drawn, self.items + len(self._redone))):
            item = ticket if ticket < self.items else self._redone[ticket - self.items]
            if item < given or item in self._results or self._owner(ticket) not in dead or self._has(f"result/{item}"):
                continue
            self._owners[ticket] = -1  # it has a new ticket now
            self._redone.append(item)
            self._set(f"again/{self.items + len(self._redone) - 1}", str(item).encode())

    def _owner(self, ticket: int) -> int:
        """Return who drew a ticket; a rank that died before it could say so is found by the others' pulses."""
        if ticket not in self._owners:
            key = f"owner/{ticket}"
            if not self._has(key):
                return min(self._pulses.dead(), default=-1)
            self._owners[ticket] = int(self._get(key))
        return self._owners[ticket]

    def _has(self, key: str) -> bool:
        return bool(self._call("check", [key]))

    def _get(self, key: str) -> bytes:
        return bytes(self._call("get", key))

    def _set(self, key: str, value: bytes) -> None:
        self._call("set", key, value)

    def _call(self, name: str, *arguments: object) -> Any:
        try:
            return getattr(self._store, name)(*arguments)
        except RuntimeError as error:
            raise PeerError("the store that the ranks meet in is gone") from error
