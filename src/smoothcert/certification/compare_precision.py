"""Compare the votes of a network in two precisions on the same noise, and transfer certificates to the second one.

Let p be a lower bound on the probability, under noise, that the network in the first precision votes for a class. If
the two precisions vote differently with probability at most zeta, then p - zeta is a lower bound on the probability of
this class in the second precision (Ugare et al., ICLR 2024). Half of alpha is spent on p, half on zeta.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from smoothcert.certification.job import Progress, prepare_job
from smoothcert.certification.protocol import SamplingProtocol
from smoothcert.data.image_data import ImageData
from smoothcert.errors import UsageError
from smoothcert.models.unaltered import is_unaltered
from smoothcert.results.records import COLUMNS, Record
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.deploy import COMPILED
from smoothcert.statistics.bounds import Floats, failure_upper_bound
from smoothcert.statistics.certify import certify_votes
from smoothcert.statistics.noise import Noise


@dataclass(frozen=True)
class Comparison(Record):
    """A certificate for the first precision, with differing votes, zeta, and the radius transferred to the second."""

    columns: ClassVar[tuple[str, ...]] = (*COLUMNS, "differ", "zeta", "transferred")

    differ: int
    zeta: float
    transferred: float


def transferred_radius(successes: ArrayLike, differ: ArrayLike, n: int, noise: Noise, alpha: float) -> Floats:
    """Return the radius certified for the second classifier, negative if nothing is certified.

    The first classifier casts `successes` of its `n` votes for the certified class. On `differ` of the `n` noise
    samples, the second classifier votes differently from the first.
    """
    failure = failure_upper_bound(successes, n, alpha / 2) + differing_bound(differ, n, alpha)
    return noise.gap_radius(np.minimum(failure, 1.0), np.minimum(failure, 1.0))


def differing_bound(differ: ArrayLike, n: int, alpha: float) -> Floats:
    """Return zeta, an upper bound on the probability that two classifiers vote differently on the same noise.

    Their votes differ on `differ` of `n` noise samples. The bound has confidence 1 - alpha / 2.
    """
    return failure_upper_bound(n - np.asarray(differ), n, alpha / 2)


def compare_precision(
    first: SmoothedClassifier,
    second: SmoothedClassifier,
    data: ImageData,
    out: str | Path | None = None,
    *,
    n0: int = 100,
    n: int = 10_000,
    alpha: float = 0.001,
    seed: int = 0,
    indices: Sequence[int] | None = None,
    batch: int | None = None,
    model: Mapping[str, Any] | None = None,
    on_progress: Callable[[Progress[Record]], None] | None = None,
) -> list[Record]:
    """Certify with the first classifier, and count on the same noise how often the second votes differently.

    Both classifiers smooth the same network, in two precisions or forms. Results are written as by `certify_dataset`,
    with the additional columns `differ`, `zeta` and `transferred`.
    """
    protocol = SamplingProtocol(n0=n0, n=n, alpha=alpha, seed=seed)
    classes = first.num_classes
    if classes is None or second.num_classes != classes or first.noise != second.noise:
        raise UsageError(
            "Expected `first` and `second` to have the same noise, and `num_classes` set to the same value."
        )
    device = first.device_for(torch.empty(0))
    micro_batch = first.micro_batch_for(data.shape, device)
    options: dict[str, Any] = {"micro_batch": micro_batch, "noise": first.noise, "precision": "fp32"}
    if {first.form, second.form} & set(COMPILED):  # each thread would compile its own copy
        options["threads"] = 1
    both = SmoothedClassifier(_Pair(first, second), first.sigma, 2 * classes, **options)

    def compare(images: Tensor, chosen: list[int], labels: list[int]) -> Iterable[Record]:
        started = time.perf_counter()
        votes = both.count_stages(images, protocol.edges, seed=seed, index=chosen, batch=batch).numpy()
        agreed, differed = votes[..., :classes], votes[..., classes:]
        selection, estimation = (agreed + differed)[:, 0], (agreed + differed)[:, 1]
        predict, radius, _ = certify_votes(selection, estimation, first.noise, alpha)
        differ = differed[:, 1].sum(axis=1)
        successes = np.take_along_axis(estimation, selection.argmax(axis=1)[:, None], axis=1)[:, 0]
        kept = np.maximum(transferred_radius(successes, differ, n, first.noise, alpha), 0.0)
        zeta = differing_bound(differ, n, alpha)
        seconds = (time.perf_counter() - started) / len(chosen)
        for i, (index, label) in enumerate(zip(chosen, labels, strict=True)):
            stages = selection[i].tolist(), estimation[i].tolist()
            certificate = index, label, int(predict[i]), float(radius[i]), seconds, *stages
            yield Comparison(*certificate, int(differ[i]), float(zeta[i]), float(kept[i]))

    settings = {**protocol.settings(), "task": "compare-precision"}
    settings |= {"first": [first.precision, first.form], "second": [second.precision, second.form]}
    job = prepare_job(both, data, out, indices, model, settings)
    return job.evaluate(Comparison, protocol.edges[-1], compare, on_progress)


class _Pair(nn.Module):
    """Two classifiers as one, with twice as many classes: c if both vote for c, c + classes if only the first does."""

    def __init__(self, first: SmoothedClassifier, second: SmoothedClassifier) -> None:
        super().__init__()
        self.first, self.second = first, second

    @property
    def scores_rows_alone(self) -> bool:
        """True if both models are unaltered networks of the package, which score each input independently."""
        return all(is_unaltered(each.model) for each in (self.first, self.second))

    def forward(self, noisy: Tensor) -> Tensor:
        """Return one-hot scores of the class that encodes both votes, or NaN where either network returns NaN."""
        scores = self.first.scores(noisy), self.second.scores(noisy)
        votes = [each.argmax(dim=1) for each in scores]
        pair = votes[0] + scores[0].shape[1] * (votes[0] != votes[1])
        invalid = scores[0].isnan().any(dim=1) | scores[1].isnan().any(dim=1)
        won: Tensor = nn.functional.one_hot(pair, 2 * scores[0].shape[1]).float()
        return won.masked_fill(invalid.unsqueeze(1), float("nan"))
