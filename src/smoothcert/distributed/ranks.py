"""The processes that do one piece of work together, as torchrun or another launcher started them.

Each has a rank; the first, rank 0, writes files, keeps the time and talks. They meet in two places: a store of small
values, through which they agree on what to do (`smoothcert.distributed.consensus`) and share work out (`.sharing`), and
collectives, which sum the tensors of training. A process that was started alone is the only rank of its group, and
everything here then costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from smoothcert.errors import SmoothcertError, first_line

T = TypeVar("T")
_PATIENCE = timedelta(minutes=10)  # with a launcher that starts its processes one after the other


class PeerError(SmoothcertError):
    """Another process of the group failed, or is gone; `said` where rank 0 tells the user why."""

    said = False


class Part(NamedTuple):
    """What one rank does of a mini-batch: `size` of its `images`, from position `first`, at `weight` in the mean."""

    first: int
    size: int
    images: int
    weight: float = 1.0

    @property
    def shared(self) -> bool:
        """Whether other ranks have other parts."""
        return self.size < self.images


@dataclass(frozen=True)
class Ranks:
    """This process among those of its group."""

    rank: int = 0
    size: int = 1
    store: Any = None
    numbers: Iterator[int] = field(default_factory=count, compare=False, repr=False)
    """Names for what the ranks do together; all do the same things in the same order."""

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and talks."""
        return self.rank == 0

    def part(self, images: int) -> Part:
        """Return this rank's part of a mini-batch; one with fewer images than ranks is done in full by each.

        >>> [tuple(Ranks(rank, 3).part(8)) for rank in range(3)]
        [(0, 2, 8, 0.25), (2, 3, 8, 0.375), (5, 3, 8, 0.375)]
        >>> Ranks(1, 4).part(2)
        Part(first=0, size=2, images=2, weight=0.25)
        """
        if images < self.size:
            return Part(0, images, images, 1 / self.size)
        first, end = (images * rank // self.size for rank in (self.rank, self.rank + 1))
        return Part(first, end - first, images, (end - first) / images)

    def connect(self, device: torch.device) -> None:
        """Make the collectives ready: NCCL for tensors on a GPU, Gloo for others."""
        import torch.distributed as dist

        if self.size > 1 and not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
            store = below(self.store, "group")
            dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.size)

    def sum_in_place(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors of one type by their sums over the ranks, in one exchange.

        Without a copy to the host on the way, so that it can be part of a captured step.
        """
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self._all_reduce(flat)
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        torch._foreach_copy_(list(tensors), [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)])

    def total(self, value: Tensor) -> Tensor:
        """Return the sum of a tensor over the ranks."""
        if self.size == 1:
            return value
        summed = value.clone()
        self._all_reduce(summed)
        return summed

    def broadcast(self, value: T) -> T:
        """Return the first rank's value, of any kind and size."""
        if self.size == 1:
            return value
        import torch.distributed as dist

        values = [value]
        with _peers_needed():
            dist.broadcast_object_list(values, src=0, device=torch.device("cpu"))
        return values[0]

    def _all_reduce(self, tensor: Tensor) -> None:
        import torch.distributed as dist

        with _peers_needed():
            dist.all_reduce(tensor)


@contextmanager
def _peers_needed() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise PeerError(f"another process of the group is gone ({first_line(error)})") from error


_joined = Ranks()
_leaving: list[Callable[[], None]] = []


def joined() -> Ranks:
    """Return this process's place in its group; alone, unless `join` found others."""
    return _joined


def join() -> Ranks:
    """Join the group that a launcher describes in RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, if there is one."""
    global _joined
    if _joined.store is None and launched_with_others():
        from torch.distributed.rendezvous import rendezvous

        from smoothcert.distributed.consensus import depart, watch_over

        try:
            store, rank, size = next(iter(rendezvous("env://", timeout=_PATIENCE)))
        except (ValueError, RuntimeError) as error:
            raise SmoothcertError(f"The other processes cannot be reached ({first_line(error)}).") from error
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # what an earlier attempt left there is void
        _joined = Ranks(rank, size, below(store, f"smoothcert/{attempt}"))
        _leaving.extend((watch_over(_joined), partial(depart, _joined)))
    return _joined


def below(store: Any, name: str) -> Any:
    """Return a store whose keys all begin with a name."""
    import torch.distributed as dist

    return dist.PrefixStore(name, store)  # type: ignore[attr-defined]


def launched_with_others() -> bool:
    """Whether a launcher started more processes than this one."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


def leave() -> None:
    """Close the connections to the others; rank 0, where they may meet, is the last to go."""
    import torch.distributed as dist

    while _leaving:
        _leaving.pop()()
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def alone() -> Iterator[None]:
    """Do a piece of work as if there were no others: a run of a table that one rank trains by itself."""
    global _joined
    before, _joined = _joined, Ranks()
    try:
        yield
    finally:
        _joined = before
