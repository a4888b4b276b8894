"""SmoothMix (Jeong et al., NeurIPS 2021): train on mixtures of images and adversarial images."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from smoothcert.methods.base import Draws, NoiseSplitMethod, StepOutput, at_least_one, at_least_zero, option, positive
from smoothcert.methods.perturb import (
    cross_entropies,
    divergence,
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
class SmoothMix(NoiseSplitMethod):
    """Cross-entropy of the noisy images, plus the divergence of the predictions for mixed images from mixed targets.

    A mixed image lies between the image and an adversarial image, which the attack finds in T steps of length alpha
    without projection. Its target lies between the mean prediction and the uniform distribution. Misclassified
    images have no divergence term.
    """

    name = "smoothmix"
    title = "SmoothMix"
    training_passes = 2

    num_noises: int = at_least_one(4, "noise samples per image (m)")
    step_size: float = positive(1.0, "length of an attack step (alpha); there is no projection onto a ball")
    attack_steps: int = at_least_one(4, "attack steps (T)")
    weight: float = at_least_zero(5.0, "weight of the mixture loss (eta)")
    one_step_adversary: bool = option(
        False, "in cross-entropy and mixture, replace the image with the image after one attack step"
    )
    warmup: int = at_least_one(
        10, "epochs over which eta, and the radius of the one-step adversary, grow to their full values"
    )

    def step(
        self, model: nn.Module, x: Tensor, y: Tensor, *, draws: Draws, epoch: Tensor | int, soft: Tensor | None = None
    ) -> StepOutput:
        """Return the loss of the images and their mixtures."""
        noise = self.sigma * draws.noise(x, self.num_noises)
        warm = warmed_up(epoch, self.warmup)
        near, far = self.attack(model, x, y, noise, warm)
        scores = scores_under(model, near, noise)
        mean = scores.softmax(dim=-1).mean(dim=0)
        cross_entropy = cross_entropies(scores, y).mean()
        share = draws.uniform(x, 1) / 2
        mixed = near + share.view(-1, *[1] * (x.dim() - 1)) * (far - near)
        uniform = torch.full(mean.shape[1:], 1 / mean.shape[1], device=x.device)  # in float32, as published
        target = mean + share * (uniform - mean)
        correct = mean.argmax(dim=1) == y
        mixing = (divergence(target, scores_under(model, mixed, noise)) * correct).mean()
        parts = {"cross_entropy": cross_entropy.detach(), "mixing": mixing.detach()}
        loss = cross_entropy + self.weight * warm * mixing
        return StepOutput(loss, {**parts, "clean_side": near, "adversarial": far})

    def attack(self, model: nn.Module, x: Tensor, y: Tensor, noise: Tensor, warm: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two images to mix: the original (or its one-step adversary) and the adversarial image."""
        near, far = x, x
        with frozen(model):
            for number in range(self.attack_steps):
                uphill = gradient(lambda z: smoothed_nll(scores_under(model, z, noise), y).sum(), far)
                far = in_range(far + self.step_size * uphill / (lengths(uphill) + 1e-8))
                if number == 0 and self.one_step_adversary:
                    near = in_range(x + within(far - x, self.step_size * warm))
        return near, far
