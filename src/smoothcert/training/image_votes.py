"""Count a network's correct votes on images under noise, during training."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from smoothcert.data.image_data import ImageData
from smoothcert.distributed.ranks import BatchShare, Ranks
from smoothcert.philox import Purpose, normal
from smoothcert.smoothing.precision import numerics
from smoothcert.training.config import TrainConfig
from smoothcert.training.streaming import BatchSource

_IMAGES = 512  # images read at once
_FIRST_VIEW = 0xFFFFFFFE  # step number of the first augmented view; views count down, training steps count up


def noisy_accuracy(
    model: nn.Module,
    data: ImageData,
    config: TrainConfig,
    ranks: Ranks | None = None,
    indices: Tensor | None = None,
) -> float:
    """Return the base classifier's accuracy, in percent, with one noise sample for each image in `indices` (or all)."""
    ranks = ranks or Ranks()
    indices = torch.arange(len(data)) if indices is None else indices
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    correct = torch.zeros((), dtype=torch.int64, device=device)
    with torch.no_grad(), numerics(config.precision, device):
        of_this_rank = indices[ranks.rank :: ranks.size].to(data.labels.device)
        most = _inputs_per_pass(device, data.shape.numel())
        for first in range(0, len(of_this_rank), most):  # a rank may have no image
            chosen = of_this_rank[first : first + most]
            images = data.floats(chosen, device)
            noise = normal(config.seed, (chosen.to(device), 0, Purpose.EVALUATION), images[0].numel(), device=device)
            scores = model(images + config.sigma * noise.view_as(images))
            correct += (scores.argmax(dim=1) == data.labels[chosen].to(device)).sum()
    model.train(training)
    return round(100 * int(ranks.total(correct)) / len(indices), 4)


def _inputs_per_pass(device: torch.device, size: int) -> int:
    return max(1, min(1000 if device.type == "cpu" else 10_000, 2**24 // size))


def count_correct(
    model: nn.Module,
    source: BatchSource,
    config: TrainConfig,
    epoch: int,
    kept: Tensor,
    samples: range,
    ranks: Ranks | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Tensor:
    """Count, for each training image in the mask `kept`, the noise samples under which it is classified correctly.

    All noise samples (with indices in the range `samples`) are added to the same augmented view of an image. The noise
    depends only on (seed, epoch, image, sample), the view only on (seed, epoch, image) and on whether `samples` starts
    at 0. Each rank votes on some of the images, and all ranks return all counts; other images have count 0.
    `on_progress` is called with the numbers of finished and of all images of this rank, and may raise to stop voting.
    """
    ranks, device, training = ranks or Ranks(), source.device, model.training
    correct = torch.zeros(len(kept), dtype=torch.int64, device=device)
    view = _FIRST_VIEW - 2 * epoch - (samples.start > 0)
    parts = list(torch.split(torch.arange(len(kept)), _IMAGES))[ranks.rank :: ranks.size]
    parts = [part for part in parts if kept[part].any()]
    done, total = 0, sum(map(len, parts))
    schedule = ((view, BatchShare(int(part[0]), len(part), len(part)), part.to(source.home)) for part in parts)
    model.eval()
    with torch.no_grad(), numerics(config.precision, device):
        for part, inputs in zip(parts, source.stream(schedule), strict=True):
            on_progress(done, total)
            done += len(part)
            images, labels, _ = source.batch(inputs, config.seed, view, int(part[0]))
            chosen = kept[part].to(device)
            correct[part[kept[part]].to(device)] = _correct_votes(
                model, images[chosen], labels[chosen], part[kept[part]].to(device), config, epoch, samples
            )
    model.train(training)
    return ranks.total(correct).cpu()


def _correct_votes(
    model: nn.Module, images: Tensor, labels: Tensor, indices: Tensor, config: TrainConfig, epoch: int, samples: range
) -> Tensor:
    """Count the correct votes on each image, in forward passes of limited size."""
    size, device = images[0].numel(), images.device
    most = _inputs_per_pass(device, size)
    numbers = torch.arange(samples.start, samples.stop, device=device)
    counts = []
    for x, y, index in zip(*(torch.split(t, most) for t in (images, labels, indices)), strict=True):
        count = torch.zeros_like(y)
        for group in torch.split(numbers, max(1, most // len(x))):
            address = (group.unsqueeze(1), index, Purpose.SAMPLING + epoch)
            noise = normal(config.seed, address, size, device=device).view(len(group), *x.shape)
            votes = model((x + config.sigma * noise).flatten(0, 1)).argmax(dim=1).view(len(group), -1)
            count += (votes == y).sum(dim=0)
        counts.append(count)
    return torch.cat(counts)
