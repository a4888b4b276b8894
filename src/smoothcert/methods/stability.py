"""Stability training (Li, Chen, Wang and Carin, NeurIPS 2019): make noisy predictions agree with clean ones."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.methods.base import Draws, Method, StepOutput, at_least_zero


@dataclass(frozen=True, kw_only=True)
class Stability(Method):
    """Cross-entropy of the clean images, plus the cross-entropy between their clean and noisy predictions.

    Gradients flow through both predictions.
    """

    name = "stability"
    title = "Stability"
    training_passes = 2

    weight: float = at_least_zero(2.0, "weight of the stability term (gamma)")

    def step(
        self, model: nn.Module, x: Tensor, y: Tensor, *, draws: Draws, epoch: Tensor | int, soft: Tensor | None = None
    ) -> StepOutput:
        """Return the loss of a clean and a noisy pass."""
        clean = model(x)
        noisy = model(x + self.sigma * draws.noise(x, 1)[0])
        cross_entropy = F.cross_entropy(clean, y)
        stability = -(clean.softmax(dim=1) * noisy.log_softmax(dim=1)).sum(dim=1).mean()
        parts = {"cross_entropy": cross_entropy.detach(), "stability": stability.detach()}
        return StepOutput(cross_entropy + self.weight * stability, parts)
