"""Gaussian training (Cohen, Rosenfeld and Kolter, ICML 2019): noise as data augmentation."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.methods.base import Draws, Method, StepOutput


@dataclass(frozen=True, kw_only=True)
class Gaussian(Method):
    """Cross-entropy of the noisy image (Eq. 5 of the CAT-RS paper)."""

    name = "gaussian"

    def step(
        self, model: nn.Module, x: Tensor, y: Tensor, *, draws: Draws, epoch: Tensor, soft: Tensor | None = None
    ) -> StepOutput:
        """Return the mean cross-entropy with one noise sample per image."""
        return StepOutput(F.cross_entropy(model(x + self.sigma * draws.noise(x, 1)[0]), y))
