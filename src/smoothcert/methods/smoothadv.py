"""SmoothAdv (Salman et al., NeurIPS 2019): adversarial training with attacks on the smoothed classifier."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from smoothcert.methods.base import Draws, NoiseSplitMethod, StepOutput, at_least_one, positive
from smoothcert.methods.perturb import (
    cross_entropies,
    frozen,
    gradient,
    in_range,
    lengths,
    scores_under,
    smoothed_nll,
    warmed_up,
    within,
)


@dataclass(frozen=True, kw_only=True)
class SmoothAdv(NoiseSplitMethod):
    """Cross-entropy of adversarial images under m noise samples; the attack takes T steps within radius epsilon.

    The attack maximizes -log of the label's mean probability over the same noise samples (Eq. 8 of the CAT-RS paper).
    """

    name = "smoothadv"
    title = "SmoothAdv"

    num_noises: int = at_least_one(4, "noise samples per image (m)")
    attack_radius: float = positive(1.0, "l2 radius of the attack (epsilon)")
    attack_steps: int = at_least_one(10, "attack steps (T)")
    warmup: int = at_least_one(10, "epochs over which the radius grows to its full value")

    def step(
        self, model: nn.Module, x: Tensor, y: Tensor, *, draws: Draws, epoch: Tensor | int, soft: Tensor | None = None
    ) -> StepOutput:
        """Return the mean cross-entropy of the attacked images over all noise samples."""
        noise = self.sigma * draws.noise(x, self.num_noises)
        radius = self.attack_radius * warmed_up(epoch, self.warmup)
        adversarial = self.attack(model, x, y, noise, radius, draws)
        loss = cross_entropies(scores_under(model, adversarial, noise), y).mean()
        return StepOutput(loss, {"adversarial": adversarial})

    def attack(self, model: nn.Module, x: Tensor, y: Tensor, noise: Tensor, radius: Tensor, draws: Draws) -> Tensor:
        """Return the inputs after T attack steps.

        Each step clamps images to [0, 1], then projects the inputs onto the ball. If the gradient of an image is
        exactly 0 (a saturated softmax), the step takes an unnormalized random direction.
        """
        delta = torch.zeros_like(x)
        with frozen(model):
            for _ in range(self.attack_steps):
                uphill = gradient(lambda d: smoothed_nll(scores_under(model, x + d, noise), y).sum(), delta)
                length = lengths(uphill)
                uphill = torch.where(length > 0, uphill / length, draws.direction(x))
                delta = delta + 2 * radius / self.attack_steps * uphill
                delta = within(in_range(x + delta) - x, radius)
        return x + delta
