"""Voting by ensembles with consensus: the remaining members see only inputs on which the first members disagree.

These inputs are gathered from many micro-batches and scored in new micro-batches of the same shape. Every input keeps
its row, because kernels may round differently in another row; the scores in a row do not depend on other rows. So votes
are identical to the votes of the ensemble's `forward`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from smoothcert.models import Ensemble

Tally = Callable[[Tensor, Tensor], None]
"""Function of scores [..., classes] and places [...] that adds each vote to the counters at its place."""
_FULL = 0.75  # share of rows in use at which a micro-batch counts as full
_MOST_PENDING = 16  # number of pending inputs, in micro-batches, that triggers the scoring of full micro-batches


class Gathering:
    """Inputs of one thread that wait to be scored by the remaining members of a deployed ensemble."""

    def __init__(self, ensemble: Ensemble, micro_batch: int, tally: Tally, device: torch.device) -> None:
        self._ensemble, self._micro_batch, self._tally = ensemble, micro_batch, tally
        # Tuples of inputs, sums of scores, rows, places and layers; a layer is a gathered micro-batch.
        self._waiting: list[tuple[Tensor, ...]] = []
        self._depth = torch.zeros(micro_batch, dtype=torch.int64, device=device)  # number of pending inputs per row
        self._count = 0

    def add(self, noisy: Tensor, places: Tensor) -> None:
        """Count the votes of inputs on which the first members agree, and keep the other inputs.

        `noisy` is [micro-batches, rows, ...]; `places` [micro-batches, rows] are passed to `tally`.
        """
        for part, place in zip(noisy, places, strict=True):
            total, agree = self._ensemble.first(part.clone())  # members may write into their inputs
            assert self._ensemble.consensus is not None
            self._tally((total / self._ensemble.consensus)[agree], place[agree])
            rows = (~agree).nonzero()[:, 0]
            layers = self._depth[rows]
            self._waiting.append((part[rows], total[rows], rows, place[rows], layers))
            self._depth[rows] = layers + 1
            self._count += len(rows)
        if self._count >= _MOST_PENDING * self._micro_batch:
            self._score(_FULL * self._micro_batch)

    def finish(self) -> None:
        """Score all pending inputs and count their votes."""
        self._score(1)

    def _score(self, least: float) -> None:
        """Score the gathered micro-batches that contain at least `least` inputs."""
        if not self._count:
            return
        inputs, totals, rows, places, layers = (torch.cat(column) for column in zip(*self._waiting, strict=True))
        layer, sizes = 0, torch.bincount(layers).tolist()
        while layer < len(sizes) and sizes[layer] >= least:  # sizes are in descending order
            here = layers == layer
            self._tally(self._scores(inputs[here], totals[here], rows[here]), places[here])
            layer += 1
        keep = layers >= layer
        self._waiting = [(inputs[keep], totals[keep], rows[keep], places[keep], layers[keep] - layer)]
        self._depth = (self._depth - layer).clamp(min=0)
        self._count = int(keep.sum())

    def _scores(self, inputs: Tensor, totals: Tensor, rows: Tensor) -> Tensor:
        """Score inputs, each in its own row of a zero-filled micro-batch, and return only their scores."""
        batch, sums = (values.new_zeros(self._micro_batch, *values.shape[1:]) for values in (inputs, totals))
        batch[rows], sums[rows] = inputs, totals
        return self._ensemble.rest(batch, sums)[rows]
