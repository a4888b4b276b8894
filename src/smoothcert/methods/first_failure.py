"""First failure: the attack of "Average Certified Radius is a Poor Metric for Randomized Smoothing" (ICML 2025).

The other two parts of the paper's method, discard and reweight, choose the training images. They can be combined with
any method; see `smoothcert.training.sampling`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from smoothcert.methods.base import Draws, StepOutput, at_least_one, at_least_zero, positive
from smoothcert.methods.gaussian import Gaussian
from smoothcert.methods.perturb import cross_entropies, frozen, gradient_and_value, lengths, scores_under


@dataclass(frozen=True, kw_only=True)
class FirstFailure(Gaussian):
    """Cross-entropy under noise that makes the network fail, found by a search from each noise sample.

    From every noise sample, the search takes T steps of fixed length up the gradient of the cross-entropy, and rescales
    the noise to its original norm after each step. Training uses the first noise on this path under which the
    network misclassifies the image, or the last noise if it never does. Without attack steps, this is Gaussian
    training.
    """

    name = "first-failure"
    title = "First failure"

    num_noises: int = at_least_one(4, "noise samples per image")
    step_size: float = positive(
        0.5, "length of an attack step (epsilon), after which the noise is rescaled to its original norm"
    )
    attack_steps: int = at_least_zero(4, "attack steps (T); 0: no attack")
    attack_epoch: int = at_least_zero(0, "first epoch with attack steps, counted from 0 (E_t)")

    def at_epoch(self, epoch: int) -> Self:
        """Return the method to use in an epoch: before `attack_epoch`, a copy without attack steps."""
        return self if epoch >= self.attack_epoch else dataclasses.replace(self, attack_steps=0)

    def step(
        self, model: nn.Module, x: Tensor, y: Tensor, *, draws: Draws, epoch: Tensor | int, soft: Tensor | None = None
    ) -> StepOutput:
        """Return the mean cross-entropy under the noise that the attack finds."""
        noise, parts = self.sigma * draws.noise(x, self.num_noises), {}
        if self.attack_steps:
            noise, failed = self.search(model, x, y, noise)
            parts["failed"] = failed.to(x.dtype).mean()
        return StepOutput(self.loss(model, x, y, noise), {**parts, "worst_noise": noise})

    def search(self, model: nn.Module, x: Tensor, y: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the noise to train on, and a mask [samples, images] of the searches that found a failure."""

        def objective(delta: Tensor) -> tuple[Tensor, Tensor]:
            scores = scores_under(model, x, delta)
            return cross_entropies(scores, y).sum() / len(noise), scores

        size, current, chosen = lengths(noise, 2), noise, noise
        failed = torch.zeros(noise.shape[:2], dtype=torch.bool, device=noise.device)
        with frozen(model):
            for _ in range(self.attack_steps):
                uphill, scores = gradient_and_value(objective, current)
                chosen = torch.where(failed.view_as(size), chosen, current)
                failed = failed | (scores.argmax(dim=-1) != y)
                moved = current + self.step_size * uphill / (lengths(uphill, 2) + 1e-8)
                current = size * moved / (lengths(moved, 2) + 1e-8)
        return torch.where(failed.view_as(size), chosen, current), failed
