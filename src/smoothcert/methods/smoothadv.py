"""SmoothAdv (Salman et al., NeurIPS 2019): adversarial training against the smoothed classifier."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from smoothcert.methods.base import Draws, Method, StepOutput, at_least_one, positive
from smoothcert.methods.perturb import cross_entropies, frozen, gradient, lengths, scores_under, smoothed_nll, within


@dataclass(frozen=True, kw_only=True)
class SmoothAdv(Method):
    """Cross-entropy, under m noises, of an image that T steps of an attack have moved within radius epsilon.

    The attack climbs -log of the mean probability over the same noises (Eq. 7 of the CAT-RS paper).
    """

    name = "smoothadv"

    num_noises: int = at_least_one(4, "noises an image (m)")
    attack_radius: float = positive(1.0, "l2 radius of the attack (epsilon)")
    attack_steps: int = at_least_one(10, "steps of the attack (T)")
    warmup: int = at_least_one(10, "epochs over which the radius grows to its full size")

    @property
    def split(self) -> int:
        """As many steps a mini-batch as there are noises."""
        return self.num_noises

    def step(
        self, model: nn.Module, x: Tensor, y: Tensor, *, draws: Draws, epoch: Tensor, soft: Tensor | None = None
    ) -> StepOutput:
        """Return the mean cross-entropy over images and noises after the attack."""
        noise = self.sigma * draws.noise(x, self.num_noises)
        radius = self.attack_radius * ((epoch + 1) / self.warmup).clamp(max=1)
        adversarial = self.attack(model, x, y, noise, radius, draws)
        loss = cross_entropies(scores_under(model, adversarial, noise), y).mean()
        return StepOutput(loss, {"adversarial": adversarial})

    def attack(self, model: nn.Module, x: Tensor, y: Tensor, noise: Tensor, radius: Tensor, draws: Draws) -> Tensor:
        """Return the images after T steps; each is clamped to [0, 1] first and projected to the ball after that.

        Where a gradient is exactly 0 (a saturated softmax), the step goes along unnormalised noise instead.
        """
        delta = torch.zeros_like(x)
        with frozen(model):
            for _ in range(self.attack_steps):
                uphill = gradient(lambda d: smoothed_nll(scores_under(model, x + d, noise), y).sum(), delta)
                length = lengths(uphill)
                uphill = torch.where(length > 0, uphill / length, draws.direction(x))
                delta = delta + 2 * radius / self.attack_steps * uphill
                delta = within((x + delta).clamp(0, 1) - x, radius)
        return x + delta
