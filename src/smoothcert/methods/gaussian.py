"""Gaussian training (Cohen, Rosenfeld and Kolter, ICML 2019): noise as data augmentation."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.methods.base import Draws, NoiseSplitMethod, StepOutput, at_least_one


@dataclass(frozen=True, kw_only=True)
class Gaussian(NoiseSplitMethod):
    """Cross-entropy of the noisy images (Eq. 5 of the CAT-RS paper)."""

    name = "gaussian"
    title = "Gaussian"

    num_noises: int = at_least_one(1, "noise samples per image")

    def step(
        self, model: nn.Module, x: Tensor, y: Tensor, *, draws: Draws, epoch: Tensor | int, soft: Tensor | None = None
    ) -> StepOutput:
        """Return the mean cross-entropy over all noise samples."""
        return StepOutput(self.loss(model, x, y, self.sigma * draws.noise(x, self.num_noises)))

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, noise: Tensor) -> Tensor:
        """Return the mean cross-entropy under given noise."""
        return F.cross_entropy(model((x + noise).flatten(0, 1)), y.repeat(len(noise)))
