"""Compile the loss of training steps, and check its gradients once against those of the uncompiled loss."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.distributed.ranks import BatchShare
from smoothcert.errors import Notice, first_line
from smoothcert.kernels import network_kernels
from smoothcert.methods import Method
from smoothcert.smoothing.precision import numerics
from smoothcert.training.batches import Inputs

_MOST_COMPILED = 64  # compiled versions per function; the compiler's default limit is far lower
_MOST_DEVIATION = 0.2  # difference between gradients that is always tolerated, relative to their norm
_MOST_LAYERS = 64  # for deeper networks, the loss is not compiled: compile time grows quadratically with depth

LossFunction = Callable[..., tuple[Tensor, dict[str, Tensor]]]


class CompiledLoss:
    """The loss of training steps on mini-batches of one size, compiled if possible.

    For a deep network, only the network is compiled; otherwise, the whole loss is. Compiler bugs can silently produce
    wrong gradients, so `check_once` compares the gradients of the compiled and the uncompiled loss on one mini-batch.
    """

    def __init__(
        self,
        loss: LossFunction,
        model: nn.Module,
        method: Method,
        share: BatchShare,
        precision: str,
        device: torch.device,
    ) -> None:
        self.loss, self.model, self.share, self.precision, self.device = loss, model, share, precision, device
        self._checked = False
        if device.type == "cuda":
            network_kernels()  # import the kernels now: the compiler can neither import them nor query the device
        torch._dynamo.config.recompile_limit = max(_MOST_COMPILED, torch._dynamo.config.recompile_limit)
        compiled: Any = partial(torch.compile, fullgraph=True, dynamic=False)
        self.variants: list[LossFunction]  # to try in turn
        if sum(not list(module.children()) for module in model.modules()) > _MOST_LAYERS:
            self.variants = [partial(loss, model=compiled(model))]
        else:
            whole = compiled(loss)
            self.variants = [partial(whole, method=_with_tensors(method, next(model.parameters()))), whole]

    def __call__(self, inputs: Inputs, share: BatchShare) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss with the first variant that compiles, or uncompiled if no variant does."""
        for variant in list(self.variants):
            try:
                return variant(inputs, share)
            except (torch._dynamo.exc.TorchDynamoException, torch._dynamo.exc.FailOnRecompileLimitHit) as error:
                self.variants.remove(variant)
                if not self.variants:
                    # At the recompile limit, the error's cause is more informative than the error itself.
                    cause = error if isinstance(error, torch._dynamo.exc.TorchDynamoException) else error.__cause__
                    self._give_up(first_line(cause or error))
        return self.loss(inputs, share)

    def check_once(self, inputs: Inputs) -> None:
        """Fall back to uncompiled steps if compiled and uncompiled gradients differ by more than a tolerance.

        The tolerance is a fixed fraction of the gradient norm or, if larger, three times the difference between the
        uncompiled gradients at the run's precision and in float32. This difference shows how much gradients vary
        because of rounding and of random layers such as dropout. Steps also run uncompiled if the compiled forward or
        backward pass fails.
        """
        if self._checked:
            return
        self._checked = True
        try:
            expected = self._gradients(self.loss, self.precision, inputs)
            allowed = 3 * torch.dist(self._gradients(self.loss, "fp32", inputs), expected)
        except torch.OutOfMemoryError:
            return  # continue unchecked: compiled steps may need less memory
        try:
            compiled = self._gradients(self, self.precision, inputs)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # compiled code may raise anything; the uncompiled step has just succeeded
            self._give_up(first_line(error))
            return
        deviation, norm = torch.dist(compiled, expected), expected.norm()
        if self.variants and not deviation <= max(_MOST_DEVIATION * norm, allowed):
            self._give_up(f"gradients of the compiled step are off by {float(deviation / norm):.0%}")

    def _give_up(self, reason: str) -> None:
        self.variants = []
        warnings.warn(f"Steps run uncompiled: {reason}.", Notice, stacklevel=4)

    def _gradients(self, loss_function: LossFunction, precision: str, inputs: Inputs) -> Tensor:
        """Return the gradients of a step as one vector, and restore the network's buffers."""
        buffers = [(buffer, buffer.clone()) for buffer in self.model.buffers()]
        try:
            with numerics(precision, self.device, deterministic=False):
                loss, _ = loss_function(inputs, self.share)
                parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
                gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
        finally:
            for buffer, before in buffers:
                buffer.copy_(before)
        return torch.cat([gradient.flatten() for gradient in gradients])


def _with_tensors(method: Method, like: Tensor) -> Method:
    """Convert float options to tensors, so that methods that differ only in their values share one compilation."""
    changed = copy.copy(method)
    for field in dataclasses.fields(method):
        value = getattr(method, field.name)
        if field.type in ("float", float) and isinstance(value, int | float):
            object.__setattr__(changed, field.name, like.new_tensor(float(value)))
    return changed
