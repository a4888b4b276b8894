"""Training steps: compute loss and gradients, sum them over the ranks, update the weights, add up the metrics."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.distributed.ranks import BatchShare, Ranks
from smoothcert.distributed.sync_batchnorm import BatchNorm, SyncedBatchNorm, sync_batchnorm
from smoothcert.errors import UsageError, kind_of
from smoothcert.methods import Method, StepOutput
from smoothcert.models import Classifier
from smoothcert.runtime.host_memory import keep_freed_memory
from smoothcert.smoothing.precision import numerics
from smoothcert.training.batches import Inputs
from smoothcert.training.compiled_loss import CompiledLoss
from smoothcert.training.step_draws import StepDraws
from smoothcert.training.streaming import BatchSource

_DIVERGED = 1e6

Losses = tuple[Tensor, dict[str, Tensor]]
"""The loss to minimize, and the watched values (the loss and the method's own metrics), keyed by name."""


def new_stream(device: torch.device) -> Any:
    """Return a new stream of a CUDA device, or None for another device."""
    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]


class Stepper:
    """Takes training steps, and owns all state that they change: weights, optimizer, and sums of the watched values.

    The watched values are the loss and the method's own metrics. All state stays on the device, and steps read nothing
    back to the host, so that they can be captured as CUDA graphs (see `GraphStepper`). Consecutive epochs for which
    `Method.at_epoch` returns the same method form a phase. Each phase is compiled and captured separately.

    If ranks share a mini-batch, gradients and watched values are summed over the ranks, weighted by the size of each
    share, so that all ranks have the same state after every step. With `sync`, BatchNorm normalizes over the whole
    mini-batch. Otherwise, it normalizes over each share, and its running statistics are averaged. Other floating-point
    buffers of users' networks are copied from rank 0.

    Before each step, PyTorch's generator is seeded by (seed, step, rank), so that there is no generator state to save.
    Dropout and other random layers of users' networks draw from this generator.
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method,
        optimizer: torch.optim.Optimizer,
        source: BatchSource,
        *,
        seed: int,
        precision: str,
        ranks: Ranks | None = None,
        sync: bool = False,
    ) -> None:
        self.model, self.method, self.optimizer, self.source = model, method, optimizer, source
        self.seed, self.precision = seed, precision
        self.device, self.ranks = source.device, ranks or Ranks()
        self.compiled_loss: CompiledLoss | None = None
        self._phase, self._enters_phase, self._phase_epoch = method.at_epoch(0), True, 0
        if self.device.type == "cpu":
            keep_freed_memory()
        self._of_user = not isinstance(model, Classifier)
        self._synced: list[SyncedBatchNorm] = sync_batchnorm(model, self.ranks) if sync and self.ranks.size > 1 else []
        norms = [module for module in model.modules() if isinstance(module, BatchNorm)]
        running = [value for norm in norms for value in (norm.running_mean, norm.running_var) if value is not None]
        self._statistics = [] if self._synced else running
        floats = [buffer for buffer in model.buffers() if buffer.is_floating_point()] if self._of_user else []
        self._other_buffers = [buffer for buffer in floats if buffer not in set(running)]
        self.names: list[str] = []  # names of the watched values, sorted as in a restored state
        self.sums = torch.zeros(0, dtype=torch.float64, device=self.device)
        self.first_bad = torch.full((), -1, dtype=torch.int64, device=self.device)
        self._epoch = torch.zeros((), device=self.device)
        self._step = torch.zeros((), dtype=torch.int64, device=self.device)

    def compile(self, images: int) -> None:
        """Compile steps on `images` images as soon as one is taken. Steps on other mini-batch sizes run uncompiled."""
        share = self.ranks.share_of(images)
        self.compiled_loss = CompiledLoss(self.loss, self.model, self._phase, share, self.precision, self.device)

    def set_position(self, epoch: int, step: int, learning_rate: float) -> None:
        """Set the epoch, index and learning rate of the next step. CUDA graphs read these values from the device."""
        if epoch != self._phase_epoch:
            self._phase_epoch, phase = epoch, self.method.at_epoch(epoch)
            if phase != self._phase:
                self.enter_phase(phase)
        self._epoch.fill_(epoch)
        self._step.fill_(step)
        if self._of_user:
            address = f"{self.seed} {step} {self.ranks.rank}".encode()
            torch.manual_seed(int.from_bytes(blake2b(address, digest_size=7).digest(), "little"))
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(learning_rate)
            else:
                group["lr"] = learning_rate

    def enter_phase(self, phase: Method) -> None:
        """Use the method `phase` for the next steps. It may compute a different loss and watch different values."""
        self._phase, self._enters_phase = phase, True
        if self.compiled_loss is not None:
            self.compile(self.compiled_loss.share.images)

    def take_step(self, inputs: Inputs, images: int) -> None:
        """Take one step on a mini-batch of `images` images, of which `inputs` contains this rank's share."""
        share = self.ranks.share_of(images)
        self.optimizer.zero_grad(set_to_none=True)
        for norm in self._synced:
            norm.together = share.is_partial
        compute_loss: Callable[[Inputs, BatchShare], Losses] = self.loss
        if self.compiled_loss is not None and self.compiled_loss.share == share:
            self.compiled_loss.check_once(inputs)
            compute_loss = self.compiled_loss
        with numerics(self.precision, self.device, deterministic=False):
            loss, watched = compute_loss(inputs, share)
            (loss if self.ranks.size == 1 else loss * share.weight).backward()  # type: ignore[no-untyped-call]
        if self._enters_phase and self.names != sorted(watched):  # the names are equal after a resume within a phase
            self.names = sorted(watched)
            self.sums = torch.zeros(len(watched), dtype=torch.float64, device=self.device)
        self._enters_phase = False
        precise = torch.promote_types(next(self.model.parameters()).dtype, torch.float32)
        values = torch.stack([watched[name].to(precise) for name in self.names])
        self._sum_over_ranks(values, share)
        self.optimizer.step()
        self.sums += values
        bad = (self.first_bad < 0) & ~(values[self.names.index("loss")].abs() < _DIVERGED)
        self.first_bad.copy_(torch.where(bad, self._step, self.first_bad))

    def loss(
        self, inputs: Inputs, share: BatchShare, *, model: nn.Module | None = None, method: Method | None = None
    ) -> Losses:
        """Return a step's loss and watched values. `model` and `method`, if given, replace the stepper's own."""
        x, y, soft = self.source.batch(inputs, self.seed, self._step, share.first)
        draws = StepDraws(self.seed, self._step, share)
        network, method = self.model if model is None else model, self._phase if method is None else method
        output = method.step(network, x, y, draws=draws, epoch=self._epoch, soft=soft)
        if not isinstance(output, StepOutput):
            kind = kind_of(output)
            raise UsageError(f"Expected the step of {method.name} to return a `StepOutput`, but got {kind}.")
        return output.loss, output.watched()

    def _sum_over_ranks(self, values: Tensor, share: BatchShare) -> None:
        """Combine gradients, watched values and buffers of the ranks, in one exchange per dtype.

        If a network skips layers at random, ranks may use different parameters. Ranks that did not use a
        parameter add a zero gradient. If no rank did, the gradient is None, so that the optimizer skips it, as in a
        single process.
        Only to find such parameters does a step read values back to the host.
        """
        if self.ranks.size == 1:
            return
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        unused = [place for place, parameter in enumerate(trained) if parameter.grad is None]
        users = values.new_ones(len(trained))  # after the sum over the ranks: number of ranks that used each parameter
        for place in unused:
            trained[place].grad, users[place] = torch.zeros_like(trained[place]), 0
        gradients = [parameter.grad for parameter in trained if parameter.grad is not None]
        weighted = [values, *self._statistics]  # gradients are already those of the weighted loss
        torch._foreach_mul_(weighted, share.weight)
        for buffer in self._other_buffers if not self.ranks.first else ():
            buffer.zero_()
        by_dtype: dict[torch.dtype, list[Tensor]] = {}
        for tensor in (*gradients, *weighted, *self._other_buffers, users):
            by_dtype.setdefault(tensor.dtype, []).append(tensor)
        for tensors in by_dtype.values():
            self.ranks.sum_in_place(tensors)
        for place, count in zip(unused, users[unused].tolist() if unused else (), strict=True):
            if not count:
                trained[place].grad = None
