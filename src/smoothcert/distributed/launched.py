"""The processes that a launcher started, connected by a key-value store and by torch's collectives.

The store carries small values: agreement (`consensus`), the work queue (`work_queue`), signs of life (`heartbeats`) and
errors (`peer_errors`). The collectives sum the tensors of training.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from smoothcert.distributed import consensus, work_queue
from smoothcert.distributed.heartbeats import start_heartbeat
from smoothcert.distributed.peer_errors import say_goodbye
from smoothcert.distributed.ranks import PeerError, Ranks
from smoothcert.errors import SmoothcertError, first_line

T = TypeVar("T")
_RENDEZVOUS_TIMEOUT = timedelta(minutes=10)  # launchers may start their processes one after the other
_on_disconnect: list[Callable[[], None]] = []


@dataclass(frozen=True)
class LaunchedRanks(Ranks):
    """This process among those of its job."""

    store: Any = None
    numbers: Iterator[int] = field(default_factory=count, compare=False, repr=False)
    """Numbers for joint operations: all ranks perform the same operations in the same order."""

    def broadcast_from_rank0(self, value: T) -> T:
        """Send rank 0's value through the store."""
        return consensus.broadcast_from_rank0(self, value)

    def wait_for_rank0(self) -> None:
        """Wait until rank 0 gets here."""
        consensus.broadcast_from_rank0(self, True)

    def require_same_on_all_ranks(self, facts: Mapping[str, Any]) -> None:
        """Compare the facts of all ranks."""
        consensus.require_same_on_all_ranks(self, facts)

    def require_shared_folder(self, folder: Path) -> None:
        """Check that a file created by rank 0 is visible to all ranks."""
        consensus.require_shared_folder(self, folder)

    def map_in_order(self, count: int, work: Callable[[int], T]) -> Iterator[T]:
        """Distribute the work through a queue in the store."""
        return work_queue.map_in_order(self, count, work)

    def new_flag(self, name: str) -> str:
        """Return a key that all ranks share."""
        return f"{name}/{next(self.numbers)}"

    def set_flag(self, key: str) -> None:
        """Set the key in the store."""
        self.store.set(key, "")

    def flag_is_set(self, key: str) -> bool:
        """Look the key up in the store."""
        return bool(self.store.check([key]))

    def connect(self, device: torch.device) -> None:
        """Initialise torch's process group: NCCL for tensors on a GPU, Gloo for others."""
        if not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
            store = dist.PrefixStore("group", self.store)  # type: ignore[attr-defined]
            dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.size)

    def sum_in_place(self, tensors: Sequence[Tensor]) -> None:
        """Sum all tensors in one exchange, without a copy to the host, so that a captured step can contain it."""
        if not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        _all_reduce(flat)
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        torch._foreach_copy_(list(tensors), [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)])

    def total(self, value: Tensor) -> Tensor:
        """Sum a copy of the tensor."""
        summed = value.clone()
        _all_reduce(summed)
        return summed

    def broadcast_state(self, value: T) -> T:
        """Send rank 0's value through the collectives."""
        values = [value]
        with _peer_errors():
            dist.broadcast_object_list(values, src=0, device=torch.device("cpu"))
        return values[0]


def connect_to_launcher() -> LaunchedRanks:
    """Meet the other processes and return this process's place among them."""
    from torch.distributed.rendezvous import rendezvous

    try:
        store, rank, size = next(iter(rendezvous("env://", timeout=_RENDEZVOUS_TIMEOUT)))
    except (ValueError, RuntimeError) as error:
        raise SmoothcertError(f"The other processes cannot be reached ({first_line(error)}).") from error
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # ignore keys that an earlier attempt left behind
    ranks = LaunchedRanks(rank, size, dist.PrefixStore(f"smoothcert/{attempt}", store))  # type: ignore[attr-defined]
    _on_disconnect.extend((start_heartbeat(ranks), partial(say_goodbye, ranks)))
    return ranks


def disconnect() -> None:
    """Close the connections. Rank 0, which may host the store, leaves last."""
    while _on_disconnect:
        _on_disconnect.pop()()
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def _all_reduce(tensor: Tensor) -> None:
    with _peer_errors():
        dist.all_reduce(tensor)


@contextmanager
def _peer_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise PeerError(f"another process of the group is gone ({first_line(error)})") from error
