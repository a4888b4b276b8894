"""CAT-RS: confidence-aware training for randomized smoothing (Jeong, Kim and Shin, AAAI 2023)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.errors import UsageError
from smoothcert.methods.base import (
    Draws,
    NoiseSplitMethod,
    StepOutput,
    at_least_one,
    at_least_zero,
    one_of,
    option,
    positive,
)
from smoothcert.methods.perturb import cross_entropies, divergence, frozen, gradient, lengths, scores_under, within


@dataclass(frozen=True, kw_only=True)
class CatRs(NoiseSplitMethod):
    """Bottom-K loss for all images, plus a worst-case loss for images of high confidence (Algorithm 1).

    The bottom-K loss sums the cross-entropy over the K easiest of M noise samples and divides it by M. K is drawn from
    Bin(M, p), where p is the network's accuracy over the samples; a K of 0 is raised to 1 (Eq. 6).

    Images with K = M also have a worst-case loss (Eq. 7), with weight lambda (Eq. 9). An attack perturbs each of the M
    noise samples in T steps within radius epsilon; the loss is the largest divergence of the predictions from the soft
    label. Options select the variants of the paper's ablations.
    """

    name = "catrs"
    title = "CAT-RS"
    training_passes = 2
    plain_options: ClassVar[Mapping[str, Any]] = {"high": "none"}

    num_noises: int = at_least_one(4, "noise samples per image (M)")
    attack_radius: float = positive(1.0, "l2 radius of the attack around each noise sample (epsilon)")
    attack_steps: int = at_least_one(4, "attack steps (T)")
    weight: float = at_least_zero(1.0, "weight of the worst-case loss (lambda)")
    low: str = one_of(
        "low-confidence loss: bottom-k (the K easiest noise samples), mean (all noise samples, L_base) or none",
        "bottom-k",
        "mean",
        "none",
    )
    high: str = one_of("worst-case loss: max or mean over the noise samples, or none", "max", "mean", "none")
    mask: bool = option(True, "apply the worst-case loss only to images with K = M")
    target: str = one_of(
        "target of the worst-case loss: soft (the soft label), mean-prediction, or label (the hard label)",
        "soft",
        "mean-prediction",
        "label",
    )
    confidence: str = one_of(
        "source of the confidence p: network (its accuracy over the noise samples) or soft-label (the soft label's "
        "value for the true class; used for ImageNet)",
        "network",
        "soft-label",
    )
    moments: str = one_of(
        "moments of the original noise that the attack preserves: rms-each-step (mean and root mean square, as in the "
        "published code), std-at-end (mean and standard deviation, as in the paper's text), or free (none)",
        "rms-each-step",
        "std-at-end",
        "free",
    )
    attack: str = one_of(
        "images to attack: all, or masked (only images with a worst-case loss); masked saves work with a large "
        "network, but shapes vary between steps, and BatchNorm sees only the attacked images after the attack",
        "all",
        "masked",
    )
    late_radius: float = positive(2.0, "attack radius from late_epoch on")
    late_epoch: int | None = option(None, "epoch from which late_radius applies (ImageNet: 80); default: never")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low == "none" and self.high == "none":
            raise UsageError("Expected `low` or `high` to select a loss, but got 'none' for both.")

    @property
    def static(self) -> bool:  # type: ignore[override]
        """True if tensor shapes are the same in every step."""
        return self.attack == "all"

    @property
    def uses_soft_labels(self) -> bool:  # type: ignore[override]
        """True if the selected options need soft labels."""
        return self.confidence == "soft-label" or (self.high != "none" and self.target == "soft")

    def step(
        self, model: nn.Module, x: Tensor, y: Tensor, *, draws: Draws, epoch: Tensor | int, soft: Tensor | None = None
    ) -> StepOutput:
        """Return the loss of Algorithm 1."""
        noise = self.sigma * draws.noise(x, self.num_noises)
        scores = scores_under(model, x, noise)
        kept = self._kept(scores, y, soft, draws)
        low = self._low(cross_entropies(scores, y), kept).mean()
        sure = (kept == self.num_noises) if self.mask else torch.ones_like(kept, dtype=torch.bool)
        parts = {"low": low.detach(), "sure": sure.float().mean(), "kept": kept}
        if self.high == "none":
            return StepOutput(low, parts)
        target = self._target(scores, y, soft)
        if self.attack == "masked":
            if not sure.any():
                return StepOutput(low, {**parts, "high": torch.zeros_like(low)})
            x, noise, target = x[sure], noise[:, sure], target[sure]
            sure = sure[sure]
        worst = self.worst_noise(model, x, noise, target, self._radius(epoch))
        divergences = divergence(target, scores_under(model, x, worst))
        high = divergences.max(dim=0).values if self.high == "max" else divergences.mean(dim=0)
        high = (sure * high).sum() / len(y)
        return StepOutput(low + self.weight * high, {**parts, "high": high.detach(), "worst_noise": worst})

    def _kept(self, scores: Tensor, y: Tensor, soft: Tensor | None, draws: Draws) -> Tensor:
        """Draw K ~ Bin(M, p) for each image, and return K+ = max(K, 1)."""
        if self.confidence == "soft-label":
            confidence = _required(soft).gather(1, y.unsqueeze(1))
        else:
            confidence = (scores.argmax(dim=-1) == y).to(scores.dtype).mean(dim=0).unsqueeze(1)
        return (draws.uniform(y, self.num_noises) < confidence).sum(dim=1).clamp(min=1)

    def _low(self, losses: Tensor, kept: Tensor) -> Tensor:
        """Return L_low: the sum of the K+ smallest of the M losses, divided by M."""
        if self.low == "none":
            return torch.zeros_like(losses[0])
        if self.low == "mean":
            return losses.mean(dim=0)
        rank = torch.arange(len(losses), device=losses.device).unsqueeze(1)
        return (losses.sort(dim=0).values * (rank < kept)).sum(dim=0) / len(losses)

    def _target(self, scores: Tensor, y: Tensor, soft: Tensor | None) -> Tensor:
        if self.target == "soft":
            return _required(soft)
        if self.target == "label":
            return F.one_hot(y, scores.shape[-1]).to(scores.dtype)
        return scores.detach().softmax(dim=-1).mean(dim=0)

    def _radius(self, epoch: Tensor | int) -> Tensor:
        epoch = torch.as_tensor(epoch)
        early = self.attack_radius + torch.zeros_like(epoch)
        return early if self.late_epoch is None else torch.where(epoch < self.late_epoch, early, self.late_radius)

    def worst_noise(self, model: nn.Module, x: Tensor, noise: Tensor, target: Tensor, radius: Tensor) -> Tensor:
        """Perturb noise within `radius` to increase the divergence from `target`, preserving the selected moments."""

        def objective(delta: Tensor) -> Tensor:
            return divergence(target, scores_under(model, x, delta)).sum() / len(noise)

        worst = noise
        with frozen(model):
            for _ in range(self.attack_steps):
                uphill = gradient(objective, worst)
                worst = worst + 2 * radius / self.attack_steps * uphill / (lengths(uphill, 2) + 1e-8)
                worst = noise + within(worst - noise, radius, 2)
                if self.moments == "rms-each-step":
                    worst = _match(worst, noise, _root_mean_square)
        return _match(worst, noise, _deviation) if self.moments == "std-at-end" else worst


def _match(noise: Tensor, original: Tensor, size: Callable[[Tensor], Tensor]) -> Tensor:
    """Shift and rescale each noise sample to the mean and `size` (root mean square or deviation) of the original."""
    return _mean(original) + size(original) * (noise - _mean(noise)) / size(noise)


def _mean(noise: Tensor) -> Tensor:
    return noise.mean(dim=tuple(range(2, noise.dim())), keepdim=True)


def _root_mean_square(noise: Tensor) -> Tensor:
    return _mean(noise.square()).sqrt()


def _deviation(noise: Tensor) -> Tensor:
    return _root_mean_square(noise - _mean(noise))


def _required(soft: Tensor | None) -> Tensor:
    if soft is None:
        raise UsageError("Expected `soft` to be soft labels, which CAT-RS needs with these options, but got None.")
    return soft
