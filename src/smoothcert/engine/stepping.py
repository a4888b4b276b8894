"""Executing training steps: one after the other, compiled, or captured once and replayed as a CUDA graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.data.batches import ResidentData
from smoothcert.draws import StepDraws
from smoothcert.engine.precision import numerics
from smoothcert.methods import Method
from smoothcert.philox import triton_kernels

_DIVERGED = 1e6
_WARM_UP_STEPS = 3
_MOST_COMPILED = 64  # runs in one process; the compiler's own limit is far lower

Losses = tuple[Tensor, dict[str, Tensor]]


def new_stream(device: torch.device) -> Any:
    """Return a stream of a CUDA device, or None for another device."""
    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]


class Stepper:
    """Takes SGD steps and keeps, on the device, the sums of what is worth watching.

    Nothing is read back to the host while it steps. `graphs` replays each shape of mini-batch as a CUDA graph after a
    few ordinary steps; it needs a CUDA device. `compile` has steps of one size, the usual one, run as a whole by
    fused kernels; the few others of an epoch are not worth the wait.
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method,
        optimizer: torch.optim.Optimizer,
        data: ResidentData,
        *,
        seed: int,
        precision: str,
        graphs: bool = False,
    ) -> None:
        self.model, self.method, self.optimizer, self.data = model, method, optimizer, data
        self.seed, self.precision, self.graphs = seed, precision, graphs
        self.device = data.labels.device
        self.names: list[str] = []  # sorted, as a saved state gives them back
        self.sums = torch.zeros(0, dtype=torch.float64, device=self.device)
        self.first_bad = torch.full((), -1, dtype=torch.int64, device=self.device)
        self._epoch = torch.zeros((), device=self.device)
        self._step = torch.zeros((), dtype=torch.int64, device=self.device)
        self._captured: dict[int, tuple[Tensor, torch.cuda.CUDAGraph]] = {}
        self._capture_stream = new_stream(self.device)  # its own, for cuBLAS's scratch memory
        self._seen: dict[int, int] = {}
        self._compiled: dict[int, Callable[[Tensor], Losses]] = {}

    def compile(self, size: int) -> None:
        """Have steps on `size` images compiled, at the first of them."""
        triton_kernels()  # the compiler cannot import them
        torch._dynamo.config.recompile_limit = max(_MOST_COMPILED, torch._dynamo.config.recompile_limit)
        self._compiled[size] = torch.compile(self._losses, fullgraph=True, dynamic=False)

    def run(self, indices: Tensor, epoch: int, step: int, learning_rate: float) -> None:
        """Take one step on the images at these indices."""
        self._epoch.fill_(epoch)
        self._step.fill_(step)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(learning_rate)
            else:
                group["lr"] = learning_rate
        size = len(indices)
        self._seen[size] = self._seen.get(size, 0) + 1
        if not self.graphs or self._seen[size] <= _WARM_UP_STEPS:
            self._take(indices)
            return
        if size not in self._captured:
            try:
                self._captured[size] = self._capture(indices)
            except RuntimeError as error:
                self.graphs = False
                warnings.warn(f"Steps run one by one: they cannot be captured ({_first_line(error)}).", stacklevel=2)
                self._take(indices)
                return
        place, graph = self._captured[size]
        place.copy_(indices)
        graph.replay()

    def _capture(self, indices: Tensor) -> tuple[Tensor, torch.cuda.CUDAGraph]:
        place, graph = indices.clone(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=self._capture_stream):
            self._take(place)
        return place, graph

    def _take(self, indices: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with numerics(self.precision, self.device, deterministic=False):
            try:
                loss, watched = self._compiled.get(len(indices), self._losses)(indices)
            except torch._dynamo.exc.TorchDynamoException as error:
                self._compiled.clear()
                warnings.warn(f"Steps run uncompiled: {_first_line(error)}.", stacklevel=2)
                loss, watched = self._losses(indices)
            loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        loss = loss.detach()
        if not self.names:
            self.names = sorted(watched)
            self.sums = torch.zeros(len(watched), dtype=torch.float64, device=self.device)
        self.sums += torch.stack([watched[name] for name in self.names])
        bad = (self.first_bad < 0) & ~(loss.abs() < _DIVERGED)
        self.first_bad.copy_(torch.where(bad, self._step, self.first_bad))

    def _losses(self, indices: Tensor) -> Losses:
        """Return the loss of a step, and what is worth watching: it and the parts of it that are single numbers."""
        x, y, soft = self.data.batch(indices, self.seed, self._step)
        draws = StepDraws(self.seed, self._step)
        output = self.method.step(self.model, x, y, draws=draws, epoch=self._epoch, soft=soft)
        parts = {name: part for name, part in output.parts.items() if part.dim() == 0}
        return output.loss, {"loss": output.loss.detach(), **parts}


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")
