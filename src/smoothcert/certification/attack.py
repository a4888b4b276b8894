"""Attack on a smoothed classifier, to test its certificates (SmoothAdv: Salman et al., 2019).

The attack is projected gradient ascent on the smoothed loss of a class: -log of its mean probability over noise
samples. The noise samples are the same in every step. Each certificate is false with a probability of at most alpha. If
a certificate is true, no perturbation within its radius can change the smoothed prediction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields

import numpy as np
import torch
from scipy import special
from torch import Tensor, nn

from smoothcert.data.image_data import ImageData
from smoothcert.errors import UsageError, takes
from smoothcert.methods.perturb import frozen, gradient, in_range, lengths, scores_under, smoothed_nll, within
from smoothcert.philox import Purpose, normal
from smoothcert.results.records import Results, format_row
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.statistics import bounds
from smoothcert.statistics.integer_noise import LEVELS
from smoothcert.statistics.noise import GaussianNoise, GridNoise

_INSIDE = 1 - 1e-6  # keeps perturbations within the ball despite rounding


@dataclass(frozen=True)
class Trial:
    """One attack on one image.

    Attributes:
        idx: Index of the image.
        label: True class.
        certified: Certified class of the clean image, -1 for an abstention.
        radius: Certified radius of the clean image.
        within: Largest l2 length allowed for the perturbation.
        length: l2 length of the perturbation.
        answer: Smoothed prediction for the perturbed image, -1 for an abstention.
        broken: 1 if the perturbation is within the certified radius, but the answer is neither the certified class nor
            an abstention; else 0.
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
        """Format the trial as a row of the TSV file."""
        return format_row(*astuple(self))


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
    """Return the images, each perturbed within its l2 radius to raise the smoothed loss of its class.

    Images stay in [0, 1]; vectors may leave the range of the data.
    """
    network = _network_of(classifier)
    noise = _noise(images, indices, num_noises, seed)
    limit = (radii * _INSIDE).view(-1, *[1] * (images.dim() - 1)).float()
    delta = torch.zeros_like(images)

    def loss(moved: Tensor) -> Tensor:
        return _smoothed_loss(network, images + moved, classes, classifier.sigma * noise)

    with frozen(network):
        for _ in range(steps):
            slope = gradient(loss, delta)
            # The gradient of a saturated softmax is zero; step along a noise sample instead.
            slope = torch.where(lengths(slope) > 0, slope, noise[0])
            delta = delta + 2.5 / steps * limit * slope / lengths(slope).clamp(min=1e-12)
            delta = within(in_range(images + within(delta, limit)) - images, limit)
    if isinstance(classifier.noise, GridNoise):
        delta = (delta * LEVELS).trunc() / LEVELS
        return ((images + delta) * LEVELS).round().clamp(0, LEVELS) / LEVELS
    return in_range(images + delta)


@takes(classifier=SmoothedClassifier, x=Tensor, classes=Tensor, num_noises=int, seed=int)
def smoothed_gradient(
    classifier: SmoothedClassifier, x: Tensor, classes: Tensor, *, num_noises: int = 32, seed: int = 0
) -> Tensor:
    """Return the gradient of the smoothed loss with respect to the inputs, for custom attacks.

    The loss of an input is -log of the mean probability of its class over noise samples (SmoothAdv: Salman et al.,
    2019). The noise is a function of the seed and the input's place in the batch, so it is the same in every call.
    During the call, the network is in eval mode, and gradients of its weights are neither computed nor changed.

    Args:
        classifier: A smoothed module with Gaussian noise.
        x: A batch of inputs, on the device of the module.
        classes: For each input, the class whose loss is differentiated, [inputs].
        num_noises: Number of noise samples per input. The network processes all of them in one pass.
        seed: Seed of the noise.

    Returns:
        The gradient, with the shape of `x`. A small step along the gradient makes the class less likely.

    Raises:
        UsageError: If the base classifier is not a module, the noise is not Gaussian, or an argument is invalid.

    Example:
        >>> network = nn.Linear(2, 2, bias=False)
        >>> _ = network.weight.data.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        >>> slope = smoothed_gradient(SmoothedClassifier(network, sigma=0.5), torch.zeros(1, 2), torch.tensor([0]))
        >>> bool(slope[0, 0] < 0), float(slope[0, 1])
        (True, 0.0)
    """
    bounds.check_count("num_noises", num_noises)
    bounds.check_seed(seed)
    got = f"{classes.dtype} of shape {list(classes.shape)}"
    if classes.shape != x.shape[:1] or classes.is_floating_point() or classes.is_complex():
        raise UsageError(f"Expected `classes` to be integers of shape {list(x.shape[:1])}, but got {got}.")
    network, shape = _network_of(classifier), classifier.input_shape
    if shape is not None and x.shape[1:] != shape:
        raise UsageError(f"Expected `x` to be a batch of inputs of shape {list(shape)}, but got {list(x.shape)}.")
    noise = classifier.sigma * _noise(x, range(len(x)), num_noises, seed)
    with frozen(network):
        return gradient(lambda at: _smoothed_loss(network, at, classes, noise), x)


def _network_of(classifier: SmoothedClassifier) -> nn.Module:
    if not isinstance(classifier.noise, GaussianNoise) or not isinstance(classifier.model, nn.Module):
        raise UsageError("Expected `classifier` to smooth a module with Gaussian noise; others cannot be attacked.")
    return classifier.model


def _noise(x: Tensor, indices: Sequence[int], num_noises: int, seed: int) -> Tensor:
    """Return standard normal noise, [num_noises, *x.shape], as a function of the seed and each image's index."""
    numbers = torch.arange(num_noises, device=x.device).unsqueeze(1)
    address = (numbers, torch.as_tensor(indices, device=x.device), Purpose.ATTACK)
    return normal(seed, address, x[0].numel(), device=x.device).view(num_noises, *x.shape)


def _smoothed_loss(network: nn.Module, x: Tensor, classes: Tensor, noise: Tensor) -> Tensor:
    return smoothed_nll(scores_under(network, x, noise), classes).sum()


def attack_dataset(
    classifier: SmoothedClassifier,
    data: ImageData,
    certificates: Results,
    indices: Sequence[int],
    radii: Sequence[float],
    *,
    n: int = 1000,
    alpha: float = 0.001,
    seed: int = 0,
    batch: int | None = None,
    on_progress: Callable[[int, Sequence[Trial]], None] | None = None,
    **options: int,
) -> list[Trial]:
    """Attack each image within each of `radii` and, if the image is certified, also within its certified radius.

    The attack raises the loss of the certified class, or of the label if the image has no certificate. The class of a
    perturbed image is predicted from `n` votes. Every image must be in `certificates`. `options` may contain `steps`
    and `num_noises`, which are passed to `perturb_images`.
    """
    device = classifier.device_for(torch.empty(0))
    rows = {int(idx): row for row, idx in enumerate(certificates.idx)}
    trials = list[Trial]()
    for done, index in enumerate(indices, 1):
        certified, radius = int(certificates.predict[rows[index]]), float(certificates.radius[rows[index]])
        tested = sorted({*radii, *([radius] if radius > 0 else [])})
        image = data.floats([index], device)
        clean = image.expand(len(tested), *image.shape[1:]).contiguous()
        label = int(data.labels[index])
        target = torch.full((len(tested),), certified if certified >= 0 else label, device=device)
        same = [index] * len(tested)
        limits = torch.tensor(tested, device=device)
        perturbed = perturb_images(classifier, clean, target, limits, same, seed=seed, **options)
        votes = classifier.count_stages(perturbed, (0, n), seed=seed, index=same, batch=batch, purpose=Purpose.PREDICT)
        answers = bounds.predict_counts(votes[:, 0].numpy(), alpha).tolist()
        distances = lengths(perturbed.double() - clean.double()).flatten().tolist()
        new = []
        for limit, length, answer in zip(tested, distances, answers, strict=True):
            broken = certified >= 0 and length <= radius and answer not in (certified, bounds.ABSTAIN)
            new.append(Trial(index, label, certified, radius, limit, length, answer, int(broken)))
        trials += new
        if on_progress:
            on_progress(done, new)
    return trials


def surprise(trials: Sequence[Trial], alpha: float) -> tuple[int, int, float]:
    """Return the number of certificates tested, the number broken, and the p-value of the number broken.

    The null hypothesis is that errors are as rare as promised: the probability of a false certificate is at most alpha,
    and so is the probability of a wrong prediction for a perturbed image.
    """
    tested = Counter(trial.idx for trial in trials if trial.certified >= 0 and trial.length <= trial.radius)
    count, failed = len(tested), len({trial.idx for trial in trials if trial.broken})
    chance = min(1.0, alpha * (1 + max(tested.values(), default=0)))
    return count, failed, float(special.bdtrc(failed - 1, count, chance)) if failed else 1.0


def accuracies(trials: Sequence[Trial], radius: float) -> tuple[float, float]:
    """Return the certified accuracy at a radius, and the accuracy under attacks within this radius."""
    here = [trial for trial in trials if trial.within == radius]
    certified = np.mean([trial.certified == trial.label and trial.radius >= radius for trial in here])
    return float(certified), float(np.mean([trial.answer == trial.label for trial in here]))
