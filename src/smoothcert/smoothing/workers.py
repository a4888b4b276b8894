"""Threads that vote on the CPU: each thread computes whole micro-batches.

If several threads shared each operation, they would wait for each other after every operation, and on a busy machine
one delayed thread would delay all. Here, threads wait for each other only once all votes are counted. Also, an
operation on a single thread always rounds the same way, so votes do not depend on the number of threads.
"""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import FunctionType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from smoothcert.runtime.host_memory import keep_freed_memory

_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@contextmanager
def single_threaded(device: torch.device) -> Iterator[None]:
    """Run each CPU operation of the calling thread, and of threads that it starts, on a single thread."""
    if device.type != "cpu":
        yield
        return
    keep_freed_memory()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def share_out(items: Iterable[_Item], workers: Sequence[Callable[[Iterator[_Item]], _Result]]) -> list[_Result]:
    """Run workers at the same time, the first in the calling thread, on items that they take from one queue.

    If a worker fails or is interrupted, the others receive no more items; once they end, the exception is raised.
    """
    queue = deque(items)

    def run(worker: Callable[[Iterator[_Item]], _Result]) -> _Result:
        try:
            return worker(_take_all(queue))
        except BaseException:
            queue.clear()
            raise

    with ThreadPoolExecutor(len(workers), "votes", torch.set_num_threads, (1,)) as pool:
        try:
            others = [pool.submit(run, worker) for worker in workers[1:]]
            return [run(workers[0]), *(other.result() for other in others)]
        finally:
            queue.clear()


def _take_all(queue: deque[_Item]) -> Iterator[_Item]:
    with suppress(IndexError):
        while True:
            yield queue.popleft()


def copy_module(network: Any, count: int) -> list[nn.Module]:
    """Return copies of a module for other threads, or [] if copies may be unsafe. Copies share the parameters.

    A thread with its own copy does not see attributes that another thread writes. Copies are unsafe if the module
    has hooks or closures, which are not copied and may have state, or random generators, whose copies would all draw
    the same numbers.
    """
    if not isinstance(network, nn.Module) or any(map(_has_functions, network.modules())):
        return []
    copies = list[nn.Module]()
    for _ in range(count):
        memo = {id(weight): weight for weight in network.parameters()}
        try:
            copies.append(copy.deepcopy(network, memo))
        except Exception:  # a module that cannot be copied may raise anything
            return []
        if any(isinstance(value, _GENERATORS) for value in memo.values()):
            return []
    return copies


def _has_functions(module: nn.Module) -> bool:
    """Return True if a module has hooks, is compiled, or has a closure as an attribute."""
    attributes = list(vars(module).values())
    held = [item for value in attributes for item in (value if isinstance(value, list | tuple) else [value])]
    closures = any(isinstance(item, FunctionType) and item.__closure__ for item in held)
    return bool(module._forward_hooks or module._forward_pre_hooks or closures or hasattr(module, "_orig_mod"))
