"""Cascades of smoothed classifiers: each input is classified at a noise level that depends on the input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from smoothcert.errors import UsageError, takes
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.input_checks import as_batch, as_indices
from smoothcert.statistics import bounds
from smoothcert.statistics.cascade import CascadeRule, CascadeState
from smoothcert.statistics.noise import GaussianNoise


@dataclass(frozen=True)
class CascadeCertificate:
    """Result of `Cascade.certify`. For a batch, each attribute is a tensor with one entry per input.

    Attributes:
        prediction: The certified class, or -1 if the cascade abstains.
        radius: The certified l2 radius, 0 for an abstention.
        level: Index of the classifier that answers, or -1 for an abstention.

    Example:
        >>> CascadeCertificate(prediction=3, radius=0.5, level=0).radius
        0.5
    """

    prediction: Any
    radius: Any
    level: Any


@takes(classifiers=Iterable, p0=Real, first_share=Real)
class Cascade:
    """Smoothed classifiers of decreasing sigma; the first confident classifier answers (Jeong and Shin, 2023).

    Each classifier is a level of the cascade. A level answers if it gives a class a probability above `p0`. Otherwise
    the next level is consulted; if no level answers, the cascade abstains. The certificate covers the whole cascade:
    within the radius, earlier levels stay silent and the answering level keeps its class.

    Args:
        classifiers: `SmoothedClassifier`s with Gaussian noise for the same inputs and classes, in order of decreasing
            sigma.
        p0: Class probability above which a level answers, in [0.5, 1).
        first_share: Share of alpha for the first level's lower bound; the other bounds share the rest equally.

    Raises:
        UsageError: If the classifiers are incompatible, or a value is out of range.

    Example:
        >>> import smoothcert, torch
        >>> def nearest(x):  # which of two points is nearer?
        ...     return -torch.stack([(x - 0.2).square().sum(1), (x - 0.8).square().sum(1)], dim=1)
        >>> levels = [smoothcert.SmoothedClassifier(nearest, sigma, num_classes=2) for sigma in (1.0, 0.25)]
        >>> cascade = smoothcert.Cascade(levels, p0=0.75)
        >>> cascade.predict(torch.tensor([0.1, 0.2])), cascade.certify(torch.tensor([0.1, 0.2]), n=1000).level
        (0, 1)
    """

    def __init__(self, classifiers: Sequence[SmoothedClassifier], p0: float = 0.5, *, first_share: float = 0.8) -> None:
        self.classifiers = list(classifiers)
        for classifier in self.classifiers:
            if not isinstance(classifier, SmoothedClassifier) or type(classifier.noise) is not GaussianNoise:
                raise UsageError("Expected `classifiers` to be SmoothedClassifiers with Gaussian noise.")
        for name in ("num_classes", "input_shape", "input_range"):
            _require_equal(name, [getattr(classifier, name) for classifier in self.classifiers])
        self._rule = CascadeRule(tuple(one.sigma for one in self.classifiers), p0, first_share=first_share)

    def __repr__(self) -> str:
        sigmas = ", ".join(f"{sigma:g}" for sigma in self._rule.sigmas)
        return f"Cascade(sigmas=({sigmas}), p0={self._rule.p0:g}, first_share={self._rule.first_share:g})"

    def predict(
        self,
        x: Tensor,
        n0: int = 100,
        n: int = 1000,
        alpha: float = 0.001,
        *,
        seed: int | None = 0,
        index: Any = None,
        batch: int | None = None,
    ) -> Any:
        """Classify one input or a batch.

        Args:
            x: One input or a batch.
            n0: Number of noise samples per level that select the class.
            n: Number of fresh noise samples per level that bound probabilities.
            alpha: Maximum probability of returning a class that the cascade would not predict from exact probabilities.
            seed: Seed of the noise, or None for a fresh one.
            index: One integer per input, below 2**32, that identifies its noise (default: a hash of the input).
            batch: Number of noisy samples in memory at once (default: chosen for the device).

        Returns:
            The class, or -1 if the cascade abstains; int64 [batch] for a batch.

        Raises:
            UsageError: If an input is not valid, or n is too small to predict any class at `alpha`.
        """
        return self.certify(x, n0, n, alpha, seed=seed, index=index, batch=batch).prediction

    def certify(
        self,
        x: Tensor,
        n0: int = 100,
        n: int = 100_000,
        alpha: float = 0.001,
        *,
        seed: int | None = 0,
        index: Any = None,
        batch: int | None = None,
    ) -> CascadeCertificate:
        """Certify one input or a batch. Each level votes only on the inputs that the previous level passed on.

        Args:
            x: One input or a batch.
            n0: Number of noise samples per level that select the class.
            n: Number of fresh noise samples per level that bound probabilities.
            alpha: Maximum probability that the certificate is wrong.
            seed: Seed of the noise, or None for a fresh one.
            index: One integer per input, below 2**32, that identifies its noise (default: a hash of the input).
            batch: Number of noisy samples in memory at once (default: chosen for the device).

        Returns:
            The certificate: prediction, radius and the level that answers.

        Raises:
            UsageError: If an input is not valid, or n is too small to certify anything at `alpha`.
        """
        bounds.check_budget(n0, n, alpha)
        rule = CascadeRule(self._rule.sigmas, self._rule.p0, alpha, self._rule.first_share)
        rule.check_reach(n)
        inputs, single = as_batch(x, self.classifiers[0].input_shape)
        indices, state = as_indices(index, inputs), CascadeState(rule, len(inputs))
        for classifier in self.classifiers:
            classifier.check_values(inputs)
        for classifier in self.classifiers:
            open_ = torch.from_numpy(state.undecided)
            if not len(open_):
                break
            options: dict[str, Any] = {"seed": seed, "index": indices[open_], "batch": batch}
            votes = classifier.count_stages(inputs[open_.to(inputs.device)], (0, n0, n0 + n), **options).numpy()
            _require_equal("num_classes", [one.num_classes for one in self.classifiers])
            state.add_level(votes[:, 0], votes[:, 1])
        found = state.certified()
        if single:
            return CascadeCertificate(*(values[0].item() for values in found))
        return CascadeCertificate(*(torch.from_numpy(values) for values in found))


def _require_equal(name: str, values: Sequence[Any]) -> None:
    """Raise if two of the values differ; None means unknown and is ignored."""
    known = [value for value in values if value is not None]
    if other := [value for value in known if value != known[0]]:
        raise UsageError(f"Expected `classifiers` to have the same `{name}`, but got {known[0]} and {other[0]}.")
