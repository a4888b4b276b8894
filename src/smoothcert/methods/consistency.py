"""Consistency regularization (Jeong and Shin, NeurIPS 2020), alone or on adversarial images."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from smoothcert.methods.base import Draws, NoiseSplitMethod, StepOutput, at_least_one, at_least_zero, positive
from smoothcert.methods.perturb import (
    cross_entropies,
    divergence,
    entropy,
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
class Consistency(NoiseSplitMethod):
    """Cross-entropy under m noise samples, plus a penalty on predictions that differ between the samples.

    The penalty is the mean divergence of the predictions from their mean (weight lambda), plus the entropy of the mean
    prediction (weight eta).
    """

    name = "consistency"
    title = "Consistency"

    num_noises: int = at_least_one(2, "noise samples per image (m)")
    weight: float = at_least_zero(10.0, "weight of the divergence from the mean prediction (lambda)")
    entropy_weight: float = at_least_zero(
        0.5, "weight of the entropy of the mean prediction (eta; gamma in the CAT-RS paper)"
    )

    def step(
        self, model: nn.Module, x: Tensor, y: Tensor, *, draws: Draws, epoch: Tensor | int, soft: Tensor | None = None
    ) -> StepOutput:
        """Return the loss of the images under m noise samples."""
        return self.loss(model, x, y, self.sigma * draws.noise(x, self.num_noises))

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, noise: Tensor) -> StepOutput:
        """Return the regularized loss under given noise. Gradients also flow through the mean prediction."""
        scores = scores_under(model, x, noise)
        mean = scores.softmax(dim=-1).mean(dim=0)
        cross_entropy = cross_entropies(scores, y).mean()
        consistency = divergence(mean, scores).mean()
        spread = entropy(mean).mean()
        loss = cross_entropy + self.weight * consistency + self.entropy_weight * spread
        parts = {"cross_entropy": cross_entropy, "consistency": consistency, "entropy": spread}
        return StepOutput(loss, {key: value.detach() for key, value in parts.items()})


@dataclass(frozen=True, kw_only=True)
class SmoothAdvConsistency(Consistency):
    """Consistency regularization on adversarial images, a strong baseline that the CAT-RS paper does not include.

    The attack differs from SmoothAdv's in two ways. Each step moves along g / (|g| + 1e-8), where g is the gradient.
    Images are projected onto the ball before they are clamped to [0, 1].
    """

    name = "smoothadv-consistency"
    title = "SmoothAdv + Consistency"

    weight: float = at_least_zero(1.0, "weight of the divergence from the mean prediction (lambda)")
    attack_radius: float = positive(2.0, "l2 radius of the attack (epsilon)")
    attack_steps: int = at_least_one(10, "attack steps (T)")
    warmup: int = at_least_one(1, "epochs over which the radius grows to its full value")

    def step(
        self, model: nn.Module, x: Tensor, y: Tensor, *, draws: Draws, epoch: Tensor | int, soft: Tensor | None = None
    ) -> StepOutput:
        """Return the regularized loss of the attacked images."""
        noise = self.sigma * draws.noise(x, self.num_noises)
        radius = self.attack_radius * warmed_up(epoch, self.warmup)
        adversarial = self.attack(model, x, y, noise, radius, draws.images(x))
        output = self.loss(model, adversarial, y, noise)
        return StepOutput(output.loss, {**output.parts, "adversarial": adversarial})

    def attack(self, model: nn.Module, x: Tensor, y: Tensor, noise: Tensor, radius: Tensor, images: int) -> Tensor:
        """Return the images after T attack steps up the gradient of the sum of their smoothed losses.

        The sum is divided by `images`, the number of images in the whole mini-batch.
        """
        moved = x
        with frozen(model):
            for _ in range(self.attack_steps):
                uphill = gradient(lambda z: smoothed_nll(scores_under(model, z, noise), y).sum() / images, moved)
                step = 2 * radius / self.attack_steps * uphill / (lengths(uphill) + 1e-8)
                moved = in_range(x + within(moved + step - x, radius))
        return moved
