"""Decide which images to sample next in sequential certification. Does not import torch.

Stage 0 of an image is the selection of its class; stage i is the i-th look of the plan. A request consists of an
image's place in the list of images and the image's next stage. An image is busy while its new votes wait to be read; in
the meantime, a schedule may request other images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smoothcert.statistics.bounds import Ints
from smoothcert.statistics.look_plan import Plan, failure_lower_bound, undecided
from smoothcert.statistics.noise import Noise
from smoothcert.statistics.stopping import BudgetStop, StopRule

Request = tuple[int, int]
_WAVES = 16  # a pool chooses images anew after spending a sixteenth of its remaining budget


class Tracker:
    """State of every image: next stage, selected class, successes, best bound, and `active` (needs more samples)."""

    def __init__(self, plan: Plan, rule: StopRule, noise: Noise, labels: Sequence[int], n0: int) -> None:
        count = len(labels)
        self.plan, self.noise, self.n0 = plan, noise, n0
        self._needs, self._labels, self._skip_wrong = rule.needs(noise), np.asarray(labels), rule.skip_wrong
        self.stage, self.chosen, self.successes = (np.zeros(count, dtype=np.int64) for _ in range(3))
        self.failure, self.active = np.ones(count), np.ones(count, dtype=bool)

    def observe(self, places: Sequence[int], votes: Sequence[Ints]) -> None:
        """Process the votes of the next stage of distinct images, and decide which need more samples."""
        where, seen = np.asarray(places, dtype=np.int64), np.asarray(votes)
        stages = self.stage[where]
        for stage in np.unique(stages):
            at = where[stages == stage]
            if stage == 0:
                self.chosen[at] = seen[stages == stage].argmax(axis=1)
                self.active[at] = ~(self._skip_wrong & (self.chosen[at] != self._labels[at]))
            else:
                self._look(at, seen[stages == stage, self.chosen[at]], int(stage) - 1)
        self.stage[where] += 1

    def _look(self, at: Ints, successes: Ints, look: int) -> None:
        self.successes[at] = successes
        self.failure[at] = np.minimum(self.failure[at], self.plan.failure(successes, look))
        more = undecided(self.plan, self._needs, successes, look, self.failure[at])
        self.active[at] = more & (look + 1 < len(self.plan.looks))

    def cost(self, places: Ints) -> Ints:
        """Return, for each image, the number of samples in its next stage."""
        steps = np.diff([0, self.n0, *(self.n0 + look for look in self.plan.looks)])
        return np.asarray(steps[self.stage[places]], dtype=np.int64)

    def work(self, places: Ints, unit: int) -> Ints:
        """Return, for each image, the number of samples in its next stage, rounded up to a multiple of `unit`."""
        return -(-self.cost(places) // unit) * unit

    def waiting(self, busy: Sequence[int]) -> Ints:
        """Return the images that need more samples and are not busy."""
        free = self.active.copy()
        free[list(busy)] = False
        return np.flatnonzero(free)

    def worth(self, places: Ints) -> NDArray[np.float64]:
        """Return the width of each image's interval of undecided radii, divided by the samples in its next stage.

        The interval extends from the proven radius to the largest radius that the votes so far leave possible. The
        result is infinite for images without a look, so that they come first.
        """
        worth = np.full(len(places), np.inf)
        for stage in np.unique(self.stage[places]):
            if stage > 1:
                here = np.flatnonzero(self.stage[places] == stage)
                at, look = places[here], int(stage) - 2
                least = failure_lower_bound(self.successes[at], self.plan.looks[look], self.plan.alpha)
                least = np.maximum(least, self.plan.best_failure(self.successes[at], look))
                width = self.noise.radius(least) - self.noise.radius(self.failure[at])
                worth[here] = width / self.cost(at)
        return worth


@dataclass(frozen=True)
class InTurn:
    """Process images in order, as many at once as fill the device; images in progress go before new ones."""

    tracker: Tracker
    capacity: int
    unit: int = 1

    def wave(self, busy: Sequence[int] = ()) -> list[Request]:
        """Request next stages of images in progress and, if there is room, of new images; return [] if none waits."""
        waiting = self.tracker.waiting(busy)
        fresh = self.tracker.stage[waiting] == 0
        places = np.concatenate([waiting[~fresh], waiting[fresh]])
        work = self.tracker.work(places, self.unit)
        chosen = places[np.cumsum(work) - work < self.capacity]
        return [(int(place), int(self.tracker.stage[place])) for place in chosen]


class ByBudget:
    """Spend each pool's budget on its most uncertain images, in waves that depend only on the votes of the pool."""

    def __init__(self, tracker: Tracker, rule: BudgetStop) -> None:
        count = len(tracker.stage)
        self._tracker, self._pools = tracker, np.asarray(rule.pools(count))
        self.left = np.asarray(rule.pool_budgets(count), dtype=np.int64)

    def wave(self, busy: Sequence[int] = ()) -> list[Request]:
        """Request next stages within each pool's budget for one wave; return [] while votes wait to be read."""
        if busy:
            return []
        return [request for pool in np.unique(self._pools) for request in self._pool_wave(int(pool))]

    def _pool_wave(self, pool: int) -> list[Request]:
        waiting = np.flatnonzero(self._tracker.active & (self._pools == pool))
        cost, worth = self._tracker.cost(waiting), self._tracker.worth(waiting)
        requests, spent, allowed = list[Request](), 0, int(self.left[pool]) // _WAVES
        cheapest = int(cost.min(initial=self.left[pool] + 1))
        for i in np.lexsort((waiting, -worth)):
            # Images without a look and the first request may use all the remaining budget; others only a wave's share.
            limit = self.left[pool] if np.isinf(worth[i]) or not requests else allowed
            if spent + cheapest > limit:
                break
            if spent + cost[i] > limit:
                continue
            requests.append((int(waiting[i]), int(self._tracker.stage[waiting[i]])))
            spent += int(cost[i])
        self.left[pool] -= spent
        return requests
