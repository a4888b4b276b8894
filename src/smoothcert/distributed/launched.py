"""Processes started by a launcher, connected by a key-value store and by torch's collectives.

The store carries small values: agreement (`consensus`), the work queue (`work_queue`), heartbeats (`heartbeats`) and
errors (`peer_errors`). The collectives sum and broadcast tensors during training.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, partial
from importlib import import_module
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor

from smoothcert.distributed import consensus, work_queue
from smoothcert.distributed.heartbeats import Heartbeats, end_process
from smoothcert.distributed.peer_errors import leave_group, store_calls
from smoothcert.distributed.ranks import PeerError, Ranks, TrainingState
from smoothcert.errors import SmoothcertError, first_line, is_out_of_memory

_RENDEZVOUS_TIMEOUT = timedelta(minutes=10)  # launchers may start their processes one after the other
_on_disconnect: list[Callable[[], None]] = []


@dataclass(frozen=True)
class LaunchedRanks(Ranks):
    """The ranks of a job with several processes, started by torchrun or another launcher."""

    store: Any = None
    numbers: Iterator[int] = field(default_factory=count, compare=False, repr=False)
    """Counter that names joint operations. All ranks perform them in the same order, and so use the same names."""

    @cached_property
    def heartbeats(self) -> Heartbeats:
        """Heartbeats of this rank and of the ranks it watches."""
        return Heartbeats(self.rank, self.size, self.store)

    # Operations that exchange small values through the store.
    broadcast_from_rank0 = consensus.broadcast_from_rank0
    require_same_on_all_ranks = consensus.require_same_on_all_ranks
    require_shared_folder = consensus.require_shared_folder
    map_in_order = work_queue.map_in_order

    def new_flag(self, name: str) -> str:
        """Return a new key of the store; ranks that create their flags in the same order get the same key."""
        return f"{name}/{next(self.numbers)}"

    def set_flag(self, key: str) -> None:
        """Set the key in the store."""
        self.store.set(key, "")

    def flag_is_set(self, key: str) -> bool:
        """Return True if the key is in the store."""
        with store_calls():
            return bool(self.store.check([key]))

    def connect(self, device: torch.device) -> None:
        """Initialize torch's process group: NCCL for tensors on a GPU, Gloo for others."""
        self.heartbeats.uses_collectives = True
        if not dist.is_initialized():
            import_module("torch._dynamo")  # a later import would keep the group alive after its destruction
            backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
            store = dist.PrefixStore("group", self.store)  # type: ignore[attr-defined]
            dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.size)

    def sum_in_place(self, tensors: Sequence[Tensor]) -> None:
        """Sum all tensors over the ranks by one all-reduce without a host copy, so that CUDA graphs can capture it."""
        if not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        _all_reduce(flat)
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        torch._foreach_copy_(list(tensors), [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)])

    def total(self, value: Tensor) -> Tensor:
        """Return the sum of a tensor over the ranks; the tensor itself does not change."""
        summed = value.clone()
        _all_reduce(summed)
        return summed

    def broadcast_state(self, state: TrainingState | None) -> TrainingState | None:
        """Return rank 0's state on every rank, sent through the collectives in the safetensors format."""
        packed = torch.frombuffer(bytearray(save(state[0])), dtype=torch.uint8) if state and self.first else None
        header = self.broadcast_from_rank0((packed.numel(), state[1]) if packed is not None and state else None)
        if header is None:
            return None
        size, step = header
        received = torch.empty(size, dtype=torch.uint8) if packed is None else packed
        with _peer_errors():
            dist.broadcast(received, src=0)
        return load(received.numpy().tobytes()), step


def connect_to_launcher() -> LaunchedRanks:
    """Connect to the launcher's store, start the heartbeats and return this process's `LaunchedRanks`."""
    from torch.distributed.rendezvous import rendezvous

    # `rendezvous` does not time out if a frozen process accepts connections but never answers.
    limit = threading.Timer(
        _RENDEZVOUS_TIMEOUT.total_seconds() + 60, end_process, ["The other processes do not answer; stopping."]
    )
    limit.daemon = True
    limit.start()
    try:
        store, rank, size = next(iter(rendezvous("env://", timeout=_RENDEZVOUS_TIMEOUT)))
    except (ValueError, RuntimeError) as error:
        raise SmoothcertError(
            f"The other processes cannot be reached ({first_line(error)}); check MASTER_ADDR and MASTER_PORT."
        ) from error
    finally:
        limit.cancel()
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # ignore keys that an earlier attempt left behind
    ranks = LaunchedRanks(rank, size, dist.PrefixStore(f"smoothcert/{attempt}", store))  # type: ignore[attr-defined]
    _on_disconnect.extend((ranks.heartbeats.start(), _destroy_process_group, partial(leave_group, ranks)))
    return ranks


def disconnect() -> None:
    """Close the connections. Rank 0, which may host the store, leaves last."""
    if sys.exc_info()[0] is not None and _on_disconnect:
        _on_disconnect.pop()  # after an unexpected error, skip `leave_group`: the other ranks must notice it
    while _on_disconnect:
        _on_disconnect.pop()()


def _destroy_process_group() -> None:
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
        if is_out_of_memory(error):
            raise
        raise PeerError(f"Another rank has disappeared ({first_line(error)}); its output may say why.") from error
