"""Plan the steps of an epoch, and measure the accuracy under noise at its end."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from smoothcert.data.image_data import ImageData
from smoothcert.distributed.ranks import Ranks
from smoothcert.errors import UsageError
from smoothcert.philox import Purpose, normal
from smoothcert.smoothing.precision import numerics
from smoothcert.training.config import TrainConfig


def plan_epoch(images: int, batch: int, split: int) -> list[tuple[int, int]]:
    """Return, for every step of an epoch, the position of its first image and its number of images.

    Each mini-batch of consecutive images is cut into `split` steps of equal size. The last mini-batch may be smaller,
    but is cut into `split` steps, too. Remainders of this division are dropped, as in the published code.

    >>> plan_epoch(10, 4, 2)
    [(0, 2), (2, 2), (4, 2), (6, 2), (8, 1), (9, 1)]
    >>> plan_epoch(9, 4, 2)
    [(0, 2), (2, 2), (4, 2), (6, 2)]
    """
    steps = []
    for first in range(0, images, batch):
        size = min(batch, images - first) // split
        steps += [(first + number * size, size) for number in range(split) if size]
    if not steps:
        size = min(batch, images)
        raise UsageError(f"Mini-batches of {size} images are too small for {split} steps each; try `steps='whole'`.")
    return steps


def noisy_accuracy(
    model: nn.Module,
    data: ImageData,
    config: TrainConfig,
    ranks: Ranks | None = None,
    indices: Tensor | None = None,
) -> float:
    """Return the base classifier's accuracy, in percent, with one noise sample per image.

    `indices` selects the images to classify (default: all).
    """
    ranks = ranks or Ranks()
    indices = torch.arange(len(data)) if indices is None else indices
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    correct = torch.zeros((), dtype=torch.int64, device=device)
    with torch.no_grad(), numerics(config.precision, device):
        of_this_rank = indices[ranks.rank :: ranks.size].to(data.labels.device)
        most = max(1, min(1000 if device.type == "cpu" else 10_000, 2**24 // data.shape.numel()))
        for first in range(0, len(of_this_rank), most):  # a rank may have no image
            chosen = of_this_rank[first : first + most]
            images = data.floats(chosen, device)
            noise = normal(config.seed, (chosen.to(device), 0, Purpose.EVALUATION), images[0].numel(), device=device)
            scores = model(images + config.sigma * noise.view_as(images))
            correct += (scores.argmax(dim=1) == data.labels[chosen].to(device)).sum()
    model.train(training)
    return round(100 * int(ranks.total(correct)) / len(indices), 4)
