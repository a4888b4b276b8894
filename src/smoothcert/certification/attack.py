"""An attack on the smoothed classifier, to hold its certificates against (SmoothAdv: Salman et al., 2019).

Projected gradient ascent on the smoothed loss, -log of the class's mean probability over noises that stay the same
from step to step. What it finds inside a certified ball must not change the smoothed prediction, except for the few
certificates that alpha allows to be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields

import numpy as np
import torch
from scipy import special
from torch import Tensor, nn

from smoothcert.data.image_data import ImageData
from smoothcert.errors import UsageError
from smoothcert.methods.perturb import frozen, gradient, lengths, scores_under, smoothed_nll, within
from smoothcert.philox import Purpose, normal
from smoothcert.results.reader import Results
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.statistics import bounds
from smoothcert.statistics.integer_noise import LEVELS
from smoothcert.statistics.noise import GaussianNoise, GridNoise

_INSIDE = 1 - 1e-6  # what rounding adds to a perturbation's length must not carry it out of the ball


@dataclass(frozen=True)
class Trial:
    """One attack on one image: within which radius, how far it went, and the smoothed answer there.

    `certified` and `radius` are the certificate of the clean image. It is `broken` where the answer, which is -1 where
    the votes do not tell it, is another class inside the certified ball.
    """

    idx: int
    label: int
    certified: int
    radius: float
    within: float
    length: float
    answer: int
    broken: int

    def row(self) -> str:
        """The TSV line."""
        return "\t".join(str(value) for value in astuple(self)) + "\n"


COLUMNS = tuple(field.name for field in fields(Trial))


def perturb_images(
    classifier: SmoothedClassifier,
    images: Tensor,
    classes: Tensor,
    radii: Tensor,
    indices: Sequence[int],
    *,
    steps: int = 20,
    num_noises: int = 32,
    seed: int = 0,
) -> Tensor:
    """Return images in [0, 1], each within its l2 radius, on which the smoothed classifier doubts the given class."""
    model = classifier.model
    if not isinstance(classifier.noise, GaussianNoise) or not isinstance(model, nn.Module):
        raise UsageError("The attack is for networks under Gaussian noise.")
    numbers = torch.arange(num_noises, device=images.device).unsqueeze(1)
    address = (numbers, torch.as_tensor(indices, device=images.device), Purpose.ATTACK)
    noise = normal(seed, address, images[0].numel(), device=images.device).view(num_noises, *images.shape)
    limit = (radii * _INSIDE).view(-1, *[1] * (images.dim() - 1)).float()
    delta = torch.zeros_like(images)

    def loss(moved: Tensor) -> Tensor:
        return smoothed_nll(scores_under(model, images + moved, classifier.sigma * noise), classes).sum()

    with frozen(model):
        for _ in range(steps):
            slope = gradient(loss, delta)
            slope = torch.where(lengths(slope) > 0, slope, noise[0])  # a saturated softmax has no slope
            delta = delta + 2.5 / steps * limit * slope / lengths(slope).clamp(min=1e-12)
            delta = within((images + within(delta, limit)).clamp(0, 1) - images, limit)
    if isinstance(classifier.noise, GridNoise):
        delta = (delta * LEVELS).trunc() / LEVELS
        return ((images + delta) * LEVELS).round().clamp(0, LEVELS) / LEVELS
    return (images + delta).clamp(0, 1)


def attack_dataset(
    classifier: SmoothedClassifier,
    data: ImageData,
    certificates: Results,
    indices: Sequence[int],
    radii: Sequence[float],
    *,
    n: int = 1000,
    alpha: float = 0.001,
    steps: int = 20,
    num_noises: int = 32,
    seed: int = 0,
    batch: int | None = None,
    on_progress: Callable[[int, Sequence[Trial]], None] | None = None,
) -> list[Trial]:
    """Attack images within each of the radii and, where they have a certificate, within its own.

    The certified class is attacked, or the label where there is none. The smoothed answer is PREDICT's, from n votes.
    """
    bounds.check_prediction(n, alpha)
    device = classifier.device_for(torch.empty(0))
    known = {int(idx): place for place, idx in enumerate(certificates.idx)}
    trials = list[Trial]()
    for done, index in enumerate(indices, 1):
        if index not in known:
            raise UsageError(f"{certificates.name} has no certificate of image {index}; certify it first.")
        place = known[index]
        certified, radius = int(certificates.predict[place]), float(certificates.radius[place])
        tested = sorted({*radii, *([radius] if radius > 0 else [])})
        image = data.floats([index], device)
        many = image.expand(len(tested), *image.shape[1:]).contiguous()
        label = int(data.labels[index])
        target = torch.full((len(tested),), certified if certified >= 0 else label, device=device)
        same = [index] * len(tested)
        options = {"steps": steps, "num_noises": num_noises, "seed": seed}
        moved = perturb_images(classifier, many, target, torch.tensor(tested, device=device), same, **options)
        votes = classifier.count_stages(moved, (0, n), seed=seed, index=same, batch=batch, purpose=Purpose.PREDICT)
        answers = bounds.predict_counts(votes[:, 0].numpy(), alpha).tolist()
        far = lengths(moved.double() - many.double()).flatten().tolist()
        made = [
            Trial(index, label, certified, radius, limit, length, answer, _breaks(certified, radius, length, answer))
            for limit, length, answer in zip(tested, far, answers, strict=True)
        ]
        trials += made
        if on_progress:
            on_progress(done, made)
    return trials


def _breaks(certified: int, radius: float, length: float, answer: int) -> int:
    return int(certified >= 0 and length <= radius and answer not in (certified, bounds.ABSTAIN))


def surprise(trials: Sequence[Trial], alpha: float) -> tuple[int, int, float]:
    """Return the images with a certificate, those whose certificate broke, and how likely so many are by chance.

    A certificate is wrong with probability alpha at most, and so is each answer that speaks against it.
    """
    tested: dict[int, int] = {}
    broken = dict[int, int]()
    for trial in trials:
        if trial.certified >= 0 and trial.length <= trial.radius:
            tested[trial.idx] = tested.get(trial.idx, 0) + 1
            broken[trial.idx] = max(broken.get(trial.idx, 0), trial.broken)
    count, lost = len(tested), sum(broken.values())
    chance = min(1.0, alpha * (1 + max(tested.values(), default=0)))
    tail = float(special.bdtrc(lost - 1, count, chance)) if lost else 1.0
    return count, lost, tail


def accuracies(trials: Sequence[Trial], radius: float) -> tuple[float, float]:
    """Return, of the images attacked within a radius, the share certified there and the share still answered right."""
    here = [trial for trial in trials if trial.within == radius]
    certified = np.mean([trial.certified == trial.label and trial.radius >= radius for trial in here])
    return float(certified), float(np.mean([trial.answer == trial.label for trial in here]))
