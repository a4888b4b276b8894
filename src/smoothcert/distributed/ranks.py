"""Ranks: the processes that work on one job, and their operations.

`Ranks` is for jobs with one process: its operations are trivial and need no other module of this package.
`LaunchedRanks` (`smoothcert.distributed.launched`) performs the same operations among the processes that torchrun or
another launcher started. Rank 0 writes files, checks the time limit and prints.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from smoothcert.errors import SmoothcertError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

T = TypeVar("T")
TrainingState: TypeAlias = "tuple[dict[str, Tensor], int]"


class PeerError(SmoothcertError):
    """Error because another rank failed or disappeared; `reported` is True if rank 0 tells the user why."""

    reported = False


class BatchShare(NamedTuple):
    """One rank's share of a mini-batch of `images` images: the images at positions `first` to `first + size - 1`.

    `weight` is the weight of the share's loss in the mean over the ranks.
    """

    first: int
    size: int
    images: int
    weight: float = 1.0

    @property
    def is_partial(self) -> bool:
        """True if the share does not contain all images of the mini-batch."""
        return self.size < self.images


@dataclass(frozen=True)
class Ranks:
    """The ranks of a job with a single process. All operations are trivial; `LaunchedRanks` overrides them."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """True for rank 0, the process that writes and prints."""
        return self.rank == 0

    def share_of(self, images: int) -> BatchShare:
        """Return this rank's share of a mini-batch. With fewer images than ranks, every rank gets all images.

        >>> [tuple(Ranks(rank, 3).share_of(8)) for rank in range(3)]
        [(0, 2, 8, 0.25), (2, 3, 8, 0.375), (5, 3, 8, 0.375)]
        >>> Ranks(1, 4).share_of(2)
        BatchShare(first=0, size=2, images=2, weight=0.25)
        """
        if images < self.size:
            return BatchShare(0, images, images, 1 / self.size)
        first, end = (images * rank // self.size for rank in (self.rank, self.rank + 1))
        return BatchShare(first, end - first, images, (end - first) / images)

    def broadcast_from_rank0(self, value: T) -> T:
        """Return rank 0's value on every rank. The value must be small and JSON-serializable."""
        return value

    def wait_for_rank0(self) -> None:
        """Wait until rank 0 reaches this call."""
        self.broadcast_from_rank0(True)

    def require_same_on_all_ranks(self, facts: Mapping[str, Any]) -> None:
        """Raise if any value in `facts` differs between ranks; the error names its key."""

    def require_shared_folder(self, folder: Path) -> None:
        """Raise if `folder` is not the same folder on every rank."""

    def map_in_order(
        self, count: int, work: Callable[[int], T], restore: Callable[[Any], T] | None = None
    ) -> Iterator[T]:
        """Yield work(0), ..., work(count - 1) on rank 0; other ranks do part of the work and yield nothing.

        Results are sent to rank 0 as JSON (see `wire.encode`). `restore` must rebuild them if JSON changes them.
        """
        return map(work, range(count))

    def new_flag(self, name: str) -> str:
        """Return the key of a flag that any rank may set. All ranks must create their flags in the same order."""
        return name

    def set_flag(self, key: str) -> None:
        """Set a flag for all ranks."""

    def flag_is_set(self, key: str) -> bool:
        """Return True if any rank has set the flag."""
        return False

    def connect(self, device: torch.device) -> None:
        """Prepare the collectives that sum tensors over the ranks."""

    def sum_in_place(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor with its sum over the ranks. All tensors must have the same dtype."""

    def total(self, value: Tensor) -> Tensor:
        """Return the sum of a tensor over the ranks."""
        return value

    def broadcast_state(self, state: TrainingState | None) -> TrainingState | None:
        """Return rank 0's `state` (tensors and step number, or None) on every rank. Call `connect` first."""
        return state


_current = Ranks()


def current_ranks() -> Ranks:
    """Return the ranks of this process's job: this process alone, unless `join` has connected it to others."""
    return _current


def join() -> Ranks:
    """Join the processes described by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, if there are any."""
    global _current
    if launched_with_others() and _current.size == 1:
        from smoothcert.distributed.launched import connect_to_launcher

        _current = connect_to_launcher()
    return _current


def launched_with_others() -> bool:
    """Return True if a launcher started several processes."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


def leave() -> None:
    """Close the connections to the other ranks."""
    if launched_with_others():
        from smoothcert.distributed.launched import disconnect

        disconnect()


def end_process_of_rank(code: int) -> None:
    """End this process at once if a launcher started it together with others; otherwise do nothing.

    PyTorch's compiler may keep a process group alive after its destruction. The group's threads can then abort the
    process while the interpreter exits (github.com/pytorch/pytorch/issues/190489), and torchrun would report a failure.
    """
    if launched_with_others():
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(code)


@contextmanager
def as_single_process() -> Iterator[None]:
    """Work as if there were no other ranks, for example to train a run that belongs to this rank alone."""
    global _current
    before, _current = _current, Ranks()
    try:
        yield
    finally:
        _current = before
