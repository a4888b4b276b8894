"""Count votes of many images at once, each at its own stage (the selection or a look), to keep the device busy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from smoothcert.certification.scheduler import Request
from smoothcert.data.image_data import ImageData
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.statistics.bounds import Ints


@dataclass
class _Held:
    """An image in progress: input, votes per stage from `first_stage` on, next micro-batch, and seconds spent."""

    inputs: Tensor
    votes: Ints
    first_stage: int
    next_block: int
    seconds: float = 0.0


class Sampler:
    """Counts votes of images stage by stage; no micro-batch is counted twice.

    Images are identified by their place in `indices`. All requested images are processed together, but a
    micro-batch holds samples of one image, always the same ones, so a vote does not depend on the other images. Votes
    beyond the requested stage are kept for later stages.
    """

    def __init__(
        self,
        classifier: SmoothedClassifier,
        data: ImageData,
        indices: Sequence[int],
        edges: Sequence[int],
        *,
        seed: int,
        batch: int | None,
    ) -> None:
        self._classifier, self._data, self._indices, self._edges = classifier, data, indices, list(edges)
        self.device = classifier.device_for(torch.empty(0))
        self.micro_batch = classifier.micro_batch_for(data.shape, self.device)
        self._seed, self._batch, self._held = seed, batch, dict[int, _Held]()

    def resume(self, place: int, stage: int, votes: Ints) -> None:
        """Resume an image at a later stage, given the cumulative votes at its last look."""
        self._hold([place], stage)
        if stage > 1:
            self._held[place].votes[stage - 1] = votes

    def holds(self, place: int) -> bool:
        """Return True if an image is in progress."""
        return place in self._held

    def covers(self, place: int, stage: int) -> bool:
        """Return True if the votes of a stage have been counted."""
        held = self._held.get(place)
        return held is not None and self._edges[stage + 1] <= held.next_block * self.micro_batch

    def advance(self, requests: Sequence[Request]) -> None:
        """Count the votes that the requested stages still need."""
        self._hold([place for place, _ in requests if place not in self._held], 0)
        work = dict[int, range]()
        for place, stage in requests:
            first, end = self._held[place].next_block, -(-self._edges[stage + 1] // self.micro_batch)
            if end > first:
                work[place] = range(first, end)
        if not work:
            return
        started = time.perf_counter()
        slots = torch.tensor([slot for slot, part in enumerate(work.values()) for _ in part])
        numbers = torch.tensor([block for part in work.values() for block in part])
        votes = self._classifier.count_stages(
            torch.stack([self._held[place].inputs for place in work]),
            self._edges,
            seed=self._seed,
            index=[self._indices[place] for place in work],
            batch=self._batch,
            work=(slots, numbers),
        ).numpy()
        each = (time.perf_counter() - started) / len(numbers)
        for (place, part), seen in zip(work.items(), votes, strict=True):
            held = self._held[place]
            held.votes[held.first_stage :] += seen[held.first_stage :]
            held.next_block = part.stop
            held.seconds += each * len(part)

    def votes(self, place: int, stage: int) -> Ints:
        """Return the votes of the selection (stage 0), or the cumulative votes of a look."""
        votes = self._held[place].votes
        return votes[0] if stage == 0 else np.asarray(votes[1 : stage + 1].sum(axis=0))

    def take_seconds(self, place: int) -> float:
        """Return the seconds spent on an image since the last call."""
        held = self._held[place]
        seconds, held.seconds = held.seconds, 0.0
        return seconds

    def release(self, place: int) -> None:
        """Forget a finished image."""
        self._held.pop(place, None)

    def _hold(self, places: Sequence[int], stage: int) -> None:
        if not places:
            return
        inputs = self._data.floats([self._indices[place] for place in places], self.device)
        self._classifier.check_values(inputs)
        assert self._classifier.num_classes is not None
        shape = (len(self._edges) - 1, self._classifier.num_classes)
        for place, one in zip(places, inputs, strict=True):
            votes = np.zeros(shape, dtype=np.int64)
            self._held[place] = _Held(one, votes, stage, self._edges[stage] // self.micro_batch)
