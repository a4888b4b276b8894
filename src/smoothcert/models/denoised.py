"""Denoised smoothing: a denoiser in front of a classifier that was never trained with noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.errors import UsageError, kind_of, quote, takes
from smoothcert.statistics.bounds import check_sigma


@takes(noise_level=(Real, type(None)))
class Denoised(nn.Module):
    """A classifier behind a denoiser (Salman et al., NeurIPS 2020). Smooth it like any other model.

    The certificate holds for the composition of both, so neither has to be retrained.

    Args:
        denoiser: Maps noisy images, which were in [0, 1] before noise was added, to clean images.
        classifier: Maps clean images in [0, 1] to scores; see `adapt_inputs` for models with other inputs.
        noise_level: The denoiser's second argument, usually the sigma that you certify with; by default, the denoiser
            is called with the images only.

    Raises:
        UsageError: If `denoiser` or `classifier` is not callable.

    Example:
        >>> shrink = lambda x, level: x / (1 + level**2)
        >>> model = Denoised(shrink, lambda x: torch.cat([x, 1 - x], dim=1), noise_level=1.0)
        >>> model(torch.tensor([[0.8]]))
        tensor([[0.4000, 0.6000]])
    """

    def __init__(
        self, denoiser: Callable[..., Tensor], classifier: Callable[[Tensor], Any], noise_level: float | None = None
    ) -> None:
        super().__init__()
        for name, part in (("denoiser", denoiser), ("classifier", classifier)):
            if not callable(part):
                raise UsageError(f"Expected `{name}` to be a function or a module, but got {kind_of(part)}.")
        self.denoiser, self.classifier, self.noise_level = denoiser, classifier, noise_level

    def extra_repr(self) -> str:
        """Return the noise level, which the certified function depends on."""
        return "" if self.noise_level is None else f"noise_level={self.noise_level}"

    def forward(self, x: Tensor) -> Any:
        """Classify the denoised images, clipped to [0, 1]."""
        clean = self.denoiser(x) if self.noise_level is None else self.denoiser(x, self.noise_level)
        if getattr(clean, "shape", None) != x.shape:
            got = list(clean.shape) if isinstance(clean, Tensor) else kind_of(clean)
            raise UsageError(f"Expected the denoiser to return images of shape {list(x.shape)}, but got {got}.")
        return self.classifier(clean.clamp(0, 1))


@takes(predict_noise=Callable)
class OneStepDiffusion(nn.Module):
    """A denoiser that calls the noise predictor of a diffusion model once (Carlini et al., ICLR 2023).

    Images are scaled from [0, 1] to [-1, 1], which doubles the noise level. The predictor is called at the first time
    step t with sqrt((1 - a_t) / a_t) >= 2 sigma, on images scaled by sqrt(a_t).

    Args:
        predict_noise: Maps images and time steps (int64 [batch]) to the noise in the images, scaled to unit variance.
        alphas_cumprod: The products a_t of the diffusion schedule, decreasing from nearly 1.
        sigma: The noise level on images in [0, 1].

    Raises:
        UsageError: If `sigma` is not positive, or the schedule is invalid or ends below the noise level.

    Example:
        >>> denoiser = OneStepDiffusion(lambda x, t: torch.zeros_like(x), [0.99, 0.8, 0.5], sigma=0.24)
        >>> denoiser.step, denoiser(torch.tensor([[0.75]]))
        (1, tensor([[0.7500]]))
    """

    def __init__(
        self, predict_noise: Callable[[Tensor, Tensor], Tensor], alphas_cumprod: Sequence[float] | Tensor, sigma: float
    ) -> None:
        super().__init__()
        check_sigma(sigma)
        try:
            schedule = torch.as_tensor(alphas_cumprod, dtype=torch.float64, device="cpu").reshape(-1)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            schedule = torch.empty(0)
        if not len(schedule) or not bool((schedule.diff() < 0).all() & (schedule > 0).all() & (schedule < 1).all()):
            raise UsageError(
                "Expected `alphas_cumprod` to be a non-empty, decreasing sequence of values between 0 and 1."
            )
        levels = ((1 - schedule) / schedule).sqrt()
        reached = torch.nonzero(levels >= 2 * float(sigma))
        if not len(reached):
            most = float(levels[-1]) / 2
            raise UsageError(f"Expected `sigma` to be at most {most:.4g} for this schedule, but got {quote(sigma)}.")
        self.predict_noise, self.sigma, self.step = predict_noise, sigma, int(reached[0])
        self.alpha = float(schedule[self.step])

    def extra_repr(self) -> str:
        """Return the settings that the certified function depends on."""
        return f"sigma={self.sigma}, step={self.step}, alpha={self.alpha}"

    def forward(self, x: Tensor) -> Tensor:
        """Return denoised images in [0, 1]."""
        scaled = self.alpha**0.5 * (2 * x - 1)
        noise: Tensor = self.predict_noise(scaled, torch.full((len(x),), self.step, device=x.device))
        clean: Tensor = (scaled - (1 - self.alpha) ** 0.5 * noise) / self.alpha**0.5
        return (clean.clamp(-1, 1) + 1) / 2
