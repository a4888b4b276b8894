"""CUDA graphs, and voting networks as such: the host launches one thing a micro-batch, and cannot fall behind."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from smoothcert.errors import Notice, first_line

Captured = tuple[Tensor, Tensor, torch.cuda.CUDAGraph]


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph, stream: Any) -> Iterator[None]:
    """Capture a graph on a stream of its device, be that the current device or not.

    A capture that fails would leave its stream the current one, since `torch.cuda.graph` does not give it back then:
    what is done instead would not wait for what came before, nor be waited for.
    """
    device = stream.device
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.current_stream(device)):
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            yield


class Replayed:
    """A network whose weights stay as they are, captured at the first inputs of each shape and replayed from then on.

    The memory it returns is written anew by the next call. Where it cannot be captured, it is called as it is.
    """

    def __init__(self, network: Callable[[Tensor], Any]) -> None:
        self.network, self._graphs = network, True
        self._captured: dict[tuple[torch.Size, torch.dtype], Captured] = {}

    def __call__(self, x: Tensor) -> Any:
        """Return the scores of a batch on the GPU."""
        key = x.shape, x.dtype
        if self._graphs and key not in self._captured:
            try:
                self._captured[key] = self._capture(x)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self._graphs = False
                text = f"Votes are launched one by one, not replayed as a graph ({first_line(error)})."
                warnings.warn(text, Notice, stacklevel=2)
        if key not in self._captured:
            return self.network(x)
        place, scores, graph = self._captured[key]
        place.copy_(x)
        graph.replay()
        return scores

    def _capture(self, x: Tensor) -> Captured:
        place = x.clone(memory_format=torch.contiguous_format)
        self.network(place)  # compiles, and libraries allocate what they keep
        graph = torch.cuda.CUDAGraph()
        with capturing(graph, torch.cuda.Stream(x.device)):  # type: ignore[no-untyped-call]
            scores = self.network(place)
        return place, scores, graph
