"""CUDA graphs of voting networks: one launch per micro-batch, so that the GPU never waits for the host."""

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
    """Capture a graph on a stream; the stream's device need not be the current device.

    `torch.cuda.graph` leaves its stream current if a capture fails. Restoring the previous stream keeps later work in
    order.
    """
    device = stream.device
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.current_stream(device)):
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            yield


class Replayed:
    """A network with constant weights, captured as a CUDA graph for each input shape and replayed from then on.

    Each call overwrites the scores that the previous call returned. A network that cannot be captured is called
    directly.
    """

    def __init__(self, network: Callable[[Tensor], Any]) -> None:
        self.network, self._graphs = network, True
        self._captured: dict[tuple[torch.Size, torch.dtype], Captured] = {}

    def __call__(self, x: Tensor) -> Any:
        """Return the scores of a batch."""
        key = x.shape, x.dtype
        if self._graphs and key not in self._captured:
            try:
                self._captured[key] = self._capture(x)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self._graphs = False
                text = f"The network is called directly, which is slower than a CUDA graph ({first_line(error)})."
                warnings.warn(text, Notice, stacklevel=2)
        if key not in self._captured:
            return self.network(x)
        inputs, scores, graph = self._captured[key]
        inputs.copy_(x)
        graph.replay()
        return scores

    def _capture(self, x: Tensor) -> Captured:
        inputs = x.clone(memory_format=torch.contiguous_format)
        self.network(inputs)  # warm-up: compiles, and lets libraries allocate their workspaces
        graph = torch.cuda.CUDAGraph()
        with capturing(graph, torch.cuda.Stream(x.device)):  # type: ignore[no-untyped-call]
            scores = self.network(inputs)
        return inputs, scores, graph
