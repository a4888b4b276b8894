"""Choose training images by the network's accuracy under noise: discard and reweight.

Both techniques come from "Average Certified Radius is a Poor Metric for Randomized Smoothing" (ICML 2025) and work with
any method. At the start of epoch `sampling_epoch`, the network votes on the training images under noise, and images
with too few correct votes are discarded for good. At the same time, and then every `reweight_every` epochs, each
remaining image gets a weight that grows with the radius certified by its votes. From `sampling_epoch` on, each epoch
draws as many images as before, with replacement, in proportion to their weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from smoothcert.errors import SmoothcertError
from smoothcert.philox import Purpose, long_words, permutation
from smoothcert.statistics.bounds import failure_upper_bound, gaussian_radius
from smoothcert.training.config import TrainConfig

_LEAST_SHARE = 0.75  # share of correct votes below which all images get the same weight
_ALPHA = 0.1
_STATE = "sampling.weights"

Vote = Callable[[Tensor, range], Tensor]
"""Takes a mask of images and a range of noise sample indices; returns each image's number of correct votes."""


def radius_weights(correct: ArrayLike, samples: int) -> NDArray[np.float64]:
    """Return the weight of each image: the radius, in units of sigma, that its correct votes certify at confidence 0.9.

    `correct` contains each image's number of correct votes among `samples` votes. A share of correct votes below 0.75
    counts as 0.75.

    >>> radius_weights([0, 12, 13, 14, 15, 16], 16).round(5).tolist()
    [0.1537, 0.1537, 0.32862, 0.52565, 0.76488, 1.10751]
    """
    counted = np.maximum(np.asarray(correct), int(_LEAST_SHARE * samples))
    return gaussian_radius(failure_upper_bound(counted, samples, _ALPHA), 1.0)


def draw_images(weights: Tensor, seed: int, epoch: int) -> Tensor:
    """Return `len(weights)` image indices, drawn with replacement in proportion to the weights.

    The random number at each position depends only on (seed, epoch, position). Images of weight 0 are never drawn.
    """
    kept = weights.nonzero().flatten()
    ends = weights[kept].cumsum(0)
    # The second word of the address is 1 here, but 0 for shuffling.
    fractions = (long_words(seed, (epoch, 1, Purpose.ORDER), len(weights)) >> 7).double() * 2.0**-53
    places = torch.searchsorted(ends, fractions * ends[-1], right=True)
    return kept[places.clamp(max=len(kept) - 1)]


def split_validation(images: int, fraction: float) -> tuple[Tensor, Tensor]:
    """Return the sorted indices of the images to train on, and of the images set aside for validation.

    The split depends on the arguments only, so that a teacher and its student set aside the same images. At least one
    image is left to train on.

    >>> [len(part) for part in split_validation(100, 0.29)]
    [71, 29]
    """
    shuffled = permutation(0, (0, 0, Purpose.VALIDATION), images)
    aside = min(round(fraction * images), images - 1)
    return shuffled[aside:].sort().values, shuffled[:aside].sort().values


class ImageSampler:
    """Chooses the images of each epoch: all images, shuffled, until weights are set; then images drawn by weight.

    `pool` contains the indices of the images to choose from (default: all). `shares`, if given, contains another
    network's shares of correct votes. Both `shares` and the weights have an entry for every image, in the pool or not.
    """

    def __init__(
        self, config: TrainConfig, images: int, shares: Tensor | None = None, pool: Tensor | None = None
    ) -> None:
        self.config, self.images, self.shares = config, images, shares
        self.pool = torch.arange(images) if pool is None else pool
        self.weights: Tensor | None = None

    def choose(self, epoch: int, vote: Vote) -> None:
        """Set the weights at the start of an epoch for which `config.chooses_images_at` is true.

        Discarded images have weight 0. Discarding and reweighting use different noise samples.
        """
        config, shares = self.config, self.shares
        if self.weights is None:
            kept = torch.zeros(self.images, dtype=torch.bool).index_fill(0, self.pool, True)
        else:
            kept = self.weights > 0
        if epoch == config.sampling_epoch and config.discard_below:
            if shares is None:
                shares = vote(kept, range(config.discard_samples)).double() / config.discard_samples
            kept = kept & (shares >= config.discard_below)
            if not kept.any():
                raise SmoothcertError(
                    f"{config.name}: at epoch {epoch}, no training image has a share of correct votes of at least "
                    f"{config.discard_below:g}; set a lower `discard_below` or a later `sampling_epoch`."
                )
        weights = kept.double()
        if config.reweight_every:
            first, count = config.discard_samples, config.reweight_samples
            correct = vote(kept, range(first, first + count))
            weights *= torch.from_numpy(radius_weights(correct.numpy(), count))
        self.weights = weights

    def order(self, epoch: int) -> Tensor:
        """Return the indices of an epoch's images, in the order of training."""
        if self.weights is None:
            return self.pool[permutation(self.config.seed, (epoch, 0, Purpose.ORDER), len(self.pool))]
        return self.pool[draw_images(self.weights[self.pool], self.config.seed, epoch)]

    def metrics(self) -> dict[str, int]:
        """Return the number of images that are not discarded, as `kept_images`. Return {} before weights are set."""
        return {} if self.weights is None else {"kept_images": int((self.weights > 0).sum())}

    def state(self) -> dict[str, Tensor]:
        """Return the weights, if they are set, as named tensors for `restore`."""
        return {} if self.weights is None else {_STATE: self.weights}

    def restore(self, tensors: Mapping[str, Tensor], epochs: int = 0) -> None:
        """Restore the weights from a state saved after `epochs` epochs had begun. Raise if they do not match."""
        self.weights = tensors.get(_STATE)
        expected = any(self.config.chooses_images_at(epoch) for epoch in range(epochs))
        if (self.weights is None and expected) or (self.weights is not None and len(self.weights) != self.images):
            raise SmoothcertError(
                "The saved state (state.safetensors) does not have a weight for each training image; "
                "delete it to start over."
            )
