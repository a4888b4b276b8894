"""MACER (Zhai et al., ICLR 2020): maximize a soft version of the certified radius."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from smoothcert.methods.base import Draws, Method, StepOutput, at_least_one, at_least_zero, positive
from smoothcert.methods.perturb import scores_under


@dataclass(frozen=True, kw_only=True)
class Macer(Method):
    """Negative log of the label's mean probability over k noise samples, plus a hinge on the soft radius.

    The hinge applies to correctly classified images only.
    """

    name = "macer"
    title = "MACER"

    num_noises: int = at_least_one(16, "noise samples per image (k)")
    weight: float = at_least_zero(12.0, "weight of the radius term (lambda)")
    margin: float = positive(8.0, "width of the hinge on the radius (gamma)")
    temperature: float = positive(16.0, "inverse temperature of the soft radius (beta)")
    defer_epochs: int = at_least_zero(0, "epochs before the radius term starts")

    def step(
        self, model: nn.Module, x: Tensor, y: Tensor, *, draws: Draws, epoch: Tensor | int, soft: Tensor | None = None
    ) -> StepOutput:
        """Return the classification loss plus the weighted radius term, averaged over the images."""
        scores = scores_under(model, x, self.sigma * draws.noise(x, self.num_noises))
        probability = scores.softmax(dim=-1).mean(dim=0).gather(1, y.unsqueeze(1)).squeeze(1)
        classification = -(probability + 1e-10).log().sum()
        robustness = self._robustness(scores, y)
        weight = self.weight * (epoch >= self.defer_epochs)
        parts = {"classification": classification.detach() / len(x), "robustness": robustness.detach() / len(x)}
        return StepOutput((classification + weight * robustness) / len(x), parts)

    def _robustness(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return sigma/2 times the sum of gamma - xi over the correctly classified images.

        xi is the difference between the normal quantiles of the two largest class probabilities. Images for which xi is
        infinite or above gamma are left out.
        """
        mean = (self.temperature * scores).softmax(dim=-1).mean(dim=0)
        values, classes = mean.topk(2, dim=1)
        with torch.no_grad():
            radius = _quantile(values[:, 0]) - _quantile(values[:, 1])
            kept = (classes[:, 0] == y) & radius.isfinite() & (radius.abs() <= self.margin)
        # The values of other images are replaced, since the gradient of their quantile may be infinite.
        safe = torch.where(kept.unsqueeze(1), values, torch.full_like(values, 0.5))
        gap = self.margin - (_quantile(safe[:, 0]) - _quantile(safe[:, 1]))
        return self.sigma / 2 * (gap * kept).sum()


def _quantile(probability: Tensor) -> Tensor:
    """Return the standard normal quantile of each probability p; it is infinite where 2p - 1 rounds to -1 or 1."""
    return math.sqrt(2) * torch.erfinv(2 * probability - 1)
