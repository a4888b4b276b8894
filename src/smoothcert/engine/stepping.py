"""Executing training steps: one after the other, or captured once and replayed as a CUDA graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from smoothcert.data.batches import ResidentData
from smoothcert.draws import StepDraws
from smoothcert.engine.precision import numerics
from smoothcert.methods import Method

_DIVERGED = 1e6
_WARM_UP_STEPS = 3


class Stepper:
    """Takes SGD steps and keeps, on the device, the sums of what is worth watching.

    Nothing is read back to the host while it steps. `graphs` replays each shape of mini-batch as a CUDA graph after a
    few ordinary steps; it needs a CUDA device.
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
        self._seen: dict[int, int] = {}

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
            self._captured[size] = self._capture(indices)
        place, graph = self._captured[size]
        place.copy_(indices)
        graph.replay()

    def _capture(self, indices: Tensor) -> tuple[Tensor, torch.cuda.CUDAGraph]:
        place, graph = indices.clone(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            self._take(place)
        return place, graph

    def _take(self, indices: Tensor) -> None:
        x, y, soft = self.data.batch(indices, self.seed, self._step)
        draws = StepDraws(self.seed, self._step)
        self.optimizer.zero_grad(set_to_none=True)
        with numerics(self.precision, self.device, deterministic=False):
            output = self.method.step(self.model, x, y, draws=draws, epoch=self._epoch, soft=soft)
            output.loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        loss = output.loss.detach()
        watched = {"loss": loss, **{name: part for name, part in output.parts.items() if part.dim() == 0}}
        if not self.names:
            self.names = sorted(watched)
            self.sums = torch.zeros(len(watched), dtype=torch.float64, device=self.device)
        self.sums += torch.stack([watched[name] for name in self.names])
        bad = (self.first_bad < 0) & ~(loss.abs() < _DIVERGED)
        self.first_bad.copy_(torch.where(bad, self._step, self.first_bad))
