"""Executing training steps: one after the other, compiled, or captured once and replayed as a CUDA graph."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.distributed.ranks import BatchShare, Ranks
from smoothcert.distributed.sync_batchnorm import SyncedBatchNorm2d, sync_batchnorm
from smoothcert.errors import Notice, UsageError, first_line
from smoothcert.kernels import network_kernels
from smoothcert.methods import Method, StepOutput
from smoothcert.smoothing.cuda_graphs import capturing
from smoothcert.smoothing.precision import numerics
from smoothcert.training.batches import Inputs, Source
from smoothcert.training.step_draws import StepDraws

_DIVERGED = 1e6
_WARM_UP_STEPS = 3
_MOST_COMPILED = 64  # runs in one process; the compiler's own limit is far lower
_MOST_APART = 0.2  # of the gradients' length: beyond it, and beyond what rounding does, a compiled step is another
_MOST_LAYERS = 64  # of a network whose steps are compiled as a whole: the time it takes grows with their square

Losses = tuple[Tensor, dict[str, Tensor]]


def new_stream(device: torch.device) -> Any:
    """Return a stream of a CUDA device, or None for another device."""
    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]


class Stepper:
    """Takes SGD steps and keeps, on the device, the sums of what is worth watching.

    Nothing is read back to the host while it steps. `graphs` replays each shape of mini-batch as a CUDA graph after a
    few ordinary steps; it needs a CUDA device. `compile` has steps of one size, the usual one, run as a whole by
    fused kernels, or of a deep network the network alone; the few others of an epoch are not worth the wait. The first
    of them is compared with ordinary ones, for compilers have bugs that nothing else would show.

    Where `ranks` share a mini-batch, each takes the loss of its part at its weight, and gradients, sums and running
    statistics are added up over all before the optimiser steps: every rank has the same state after every step. With
    `sync` BatchNorm sees the whole mini-batch, else the running statistics are the mean of the parts'.
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method,
        optimizer: torch.optim.Optimizer,
        data: Source,
        *,
        seed: int,
        precision: str,
        graphs: bool = False,
        ranks: Ranks | None = None,
        sync: bool = False,
    ) -> None:
        self.model, self.method, self.optimizer, self.data = model, method, optimizer, data
        self.seed, self.precision, self.graphs = seed, precision, graphs
        self.device, self.ranks = data.device, ranks or Ranks()
        self._synced: list[SyncedBatchNorm2d] = (
            sync_batchnorm(model, self.ranks) if sync and self.ranks.size > 1 else []
        )
        norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)] if not self._synced else []
        self._statistics = [t for norm in norms for t in (norm.running_mean, norm.running_var) if t is not None]
        self.names: list[str] = []  # sorted, as a saved state gives them back
        self.sums = torch.zeros(0, dtype=torch.float64, device=self.device)
        self.first_bad = torch.full((), -1, dtype=torch.int64, device=self.device)
        self._epoch = torch.zeros((), device=self.device)
        self._step = torch.zeros((), dtype=torch.int64, device=self.device)
        self._captured: dict[BatchShare, tuple[Inputs, torch.cuda.CUDAGraph]] = {}
        self._capture_stream = new_stream(self.device)  # its own, for cuBLAS's scratch memory
        self._seen: dict[BatchShare, int] = {}
        self._compiled: dict[BatchShare, list[Callable[[Inputs, BatchShare], Losses]]] = {}  # ways to try in turn

    def compile(self, images: int) -> None:
        """Have steps on mini-batches of so many images compiled, at the first of them."""
        if self.device.type == "cuda":
            network_kernels()  # the compiler can neither import them nor ask the device
        torch._dynamo.config.recompile_limit = max(_MOST_COMPILED, torch._dynamo.config.recompile_limit)
        compiled: Any = partial(torch.compile, fullgraph=True, dynamic=False)
        deep = sum(not list(module.children()) for module in self.model.modules()) > _MOST_LAYERS
        ways = self._compiled[self.ranks.share_of(images)] = []
        if deep:
            ways.append(partial(self._losses, model=compiled(self.model)))
        else:
            whole = compiled(self._losses)
            ways += [partial(whole, method=_in_tensors(self.method, next(self.model.parameters()))), whole]

    def run(self, inputs: Inputs, images: int, epoch: int, step: int, learning_rate: float) -> None:
        """Take one step on a mini-batch of so many images, of which the inputs are this rank's part."""
        self._epoch.fill_(epoch)
        self._step.fill_(step)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(learning_rate)
            else:
                group["lr"] = learning_rate
        part = self.ranks.share_of(images)
        self._seen[part] = self._seen.get(part, 0) + 1
        if not self.graphs or self._seen[part] <= _WARM_UP_STEPS:
            self._take(inputs, part)
            return
        if part not in self._captured:
            try:
                self._captured[part] = self._capture(inputs, part)
            except RuntimeError as error:
                self.graphs = False
                text = f"Steps run one by one: they cannot be captured ({first_line(error)})."
                warnings.warn(text, Notice, stacklevel=2)
                self._take(inputs, part)
                return
        places, graph = self._captured[part]
        for place, value in zip(places, inputs, strict=True):
            place.copy_(value)
        graph.replay()

    def _capture(self, inputs: Inputs, part: BatchShare) -> tuple[Inputs, torch.cuda.CUDAGraph]:
        places, graph = tuple(value.clone() for value in inputs), torch.cuda.CUDAGraph()
        with capturing(graph, self._capture_stream):
            self._take(places, part)
        return places, graph

    def _take(self, inputs: Inputs, part: BatchShare) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        for norm in self._synced:
            norm.together = part.is_partial
        if part in self._compiled and self._seen[part] == 1:
            self._compare(inputs, part)
        with numerics(self.precision, self.device, deterministic=False):
            loss, watched = self._fastest_losses(inputs, part)
            (loss if self.ranks.size == 1 else loss * part.weight).backward()  # type: ignore[no-untyped-call]
        if not self.names:
            self.names = sorted(watched)
            self.sums = torch.zeros(len(watched), dtype=torch.float64, device=self.device)
        precise = next(self.model.parameters()).dtype
        values = torch.stack([watched[name].to(precise) for name in self.names])
        self._add_up(values, part)
        self.optimizer.step()
        self.sums += values
        bad = (self.first_bad < 0) & ~(values[self.names.index("loss")].abs() < _DIVERGED)
        self.first_bad.copy_(torch.where(bad, self._step, self.first_bad))

    def _add_up(self, values: Tensor, part: BatchShare) -> None:
        """Bring all ranks to the same gradients, watched values and running statistics, in one exchange."""
        if self.ranks.size == 1:
            return
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        weighted = [values, *self._statistics]  # the loss was weighted before its gradients were taken
        torch._foreach_mul_(weighted, part.weight)
        self.ranks.sum_in_place([*gradients, *weighted])

    def _fastest_losses(self, inputs: Inputs, part: BatchShare) -> Losses:
        """Return what `_losses` does, in the first way that can be compiled, or as it is."""
        for way in list(self._compiled.get(part, ())):
            try:
                return way(inputs, part)
            except (torch._dynamo.exc.TorchDynamoException, torch._dynamo.exc.FailOnRecompileLimitHit) as error:
                self._compiled[part].remove(way)
                if not self._compiled[part]:
                    # Of the limit, what led to the error says more than the error.
                    told = error if isinstance(error, torch._dynamo.exc.TorchDynamoException) else error.__cause__
                    self._compile_no_more(first_line(told or error))
        return self._losses(inputs, part)

    def _compile_no_more(self, reason: str) -> None:
        self._compiled.clear()
        warnings.warn(f"Steps run uncompiled: {reason}.", Notice, stacklevel=5)

    def _compare(self, inputs: Inputs, part: BatchShare) -> None:
        """Compile no more where gradients are off those of an ordinary step by more than rounding may explain.

        What rounding does to deep networks shows an ordinary step in float32. It shows as well whether steps are random
        beyond their draws, as with dropout. Compiled code that fails when it is run, in either direction, is given up.
        """
        try:
            ordinary = self._gradients(self._losses, self.precision, inputs, part)
            allowed = 3 * torch.dist(self._gradients(self._losses, "fp32", inputs, part), ordinary)
        except torch.OutOfMemoryError:
            return  # compiled steps may need less memory; there is nothing to compare them with
        try:
            compiled = self._gradients(self._fastest_losses, self.precision, inputs, part)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever the compiler's code may raise: the ordinary step has just been taken
            self._compile_no_more(first_line(error))
            return
        apart, length = torch.dist(compiled, ordinary), ordinary.norm()
        if part in self._compiled and not apart <= max(_MOST_APART * length, allowed):
            self._compile_no_more(f"the compiler's gradients are off by {float(apart / length):.0%}")

    def _gradients(
        self, losses: Callable[[Inputs, BatchShare], Losses], precision: str, inputs: Inputs, part: BatchShare
    ) -> Tensor:
        """Return the gradients of a step, one after the other, and leave the network as it was."""
        buffers = [(buffer, buffer.clone()) for buffer in self.model.buffers()]
        try:
            with numerics(precision, self.device, deterministic=False):
                loss, _ = losses(inputs, part)
                parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
                found = torch.autograd.grad(loss, parameters, materialize_grads=True)
        finally:
            for buffer, before in buffers:
                buffer.copy_(before)
        return torch.cat([gradient.flatten() for gradient in found])

    def _losses(
        self, inputs: Inputs, part: BatchShare, *, model: nn.Module | None = None, method: Method | None = None
    ) -> Losses:
        """Return the loss of a step, and what is worth watching: it and the parts of it that are single numbers."""
        x, y, soft = self.data.batch(inputs, self.seed, self._step, part.first)
        draws = StepDraws(self.seed, self._step, part)
        network, method = self.model if model is None else model, self.method if method is None else method
        output = method.step(network, x, y, draws=draws, epoch=self._epoch, soft=soft)
        if not isinstance(output, StepOutput):
            kind = type(output).__name__
            raise UsageError(f"Expected the step of {method.name} to return a `StepOutput`, but got a {kind}.")
        return output.loss, output.watched()


def _in_tensors(method: Method, like: Tensor) -> Method:
    """Return a method whose real hyperparameters are tensors: runs that differ in nothing else are compiled once."""
    found = copy.copy(method)
    for field in dataclasses.fields(method):
        value = getattr(method, field.name)
        if field.type in ("float", float) and isinstance(value, int | float):
            object.__setattr__(found, field.name, like.new_tensor(float(value)))
    return found
