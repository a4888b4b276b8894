"""Certifying a data set with as many samples as each image needs: the same rows however it is run."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smoothcert.certification.dataset import Progress, choose_images, describe_job
from smoothcert.certification.recertify import certify_stored
from smoothcert.certification.sampler import Sampler
from smoothcert.certification.scheduler import ByBudget, ByClock, InTurn, Request, Schedule, Tracker
from smoothcert.data.image_data import ImageData
from smoothcert.distributed.ranks import Ranks, current_ranks
from smoothcert.errors import UsageError
from smoothcert.results.look_store import Look, LookStore
from smoothcert.results.records import Record
from smoothcert.runtime.environment import describe_environment
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.counting import samples_at_once
from smoothcert.statistics import bounds
from smoothcert.statistics.look_plan import check_reach
from smoothcert.statistics.stopping import BudgetStop, StopRule

OnProgress = Callable[[Progress[Record]], None]
_SECONDS_BETWEEN_TABLES = 30.0  # a budget's rows are brought up to date this often


def certify_sequentially(
    classifier: SmoothedClassifier,
    data: ImageData,
    out: str | Path | None = None,
    *,
    rule: StopRule,
    n0: int = 100,
    n: int = 100_000,
    alpha: float = 0.001,
    seed: int = 0,
    indices: Sequence[int] | None = None,
    batch: int | None = None,
    model: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> list[Record]:
    """Certify images until the rule has seen enough, with at most n samples each; return all records.

    Otherwise as `certify_dataset`. The votes of every look lie beside the results; what an interrupted run has looked
    at is not sampled again.
    """
    bounds.check_budget(n0, n, alpha)
    bounds.check_seed(seed)
    if not isinstance(rule, StopRule):
        raise UsageError(f"Expected `rule` to be one of `smoothcert.stopping`, such as TableStop(), but got {rule!r}.")
    chosen = choose_images(classifier, data, indices)
    classes = classifier.num_classes
    if classes is None:
        raise UsageError("Expected the classifier to know its `num_classes`.")
    plan, ranks = rule.plan(n, alpha), current_ranks()
    check_reach(plan, rule.needs(classifier.noise), classifier.noise)
    if ranks.size > 1 and isinstance(rule, BudgetStop):
        raise UsageError("A budget weighs all images against each other, in one process; or give each a `--shard`.")
    device = classifier.device_for(torch.empty(0))
    settings = {"task": "certify", "sigma": classifier.sigma, "n0": n0, "n": n, "alpha": alpha, "seed": seed}
    settings |= {"stop": {**rule.settings(), **plan.settings()}, "classes": classes}
    settings |= describe_job(classifier, data, chosen, model)
    ranks.require_same_on_all_ranks(settings)
    edges = (0, n0, *(n0 + look for look in plan.looks))

    def begin(store: LookStore, part: list[int], watch: OnProgress | None = None) -> _Run:
        labels = data.labels[part].tolist()
        tracker = Tracker(plan, rule, classifier.noise, labels, n0)
        sampler = Sampler(classifier, data, part, edges, seed=seed, batch=batch)
        schedule = _schedule(rule, tracker, samples_at_once(device), sampler.micro_batch, store.seconds_before)
        return _Run(store, tracker, sampler, schedule, part, labels, isinstance(rule, BudgetStop), watch)

    path = Path(out) if out and ranks.first else None
    segment = {**describe_environment(device), "processes": ranks.size}
    with LookStore(path, chosen, classes, settings, segment) as store:
        if ranks.size > 1:
            share_looks(ranks, store, chosen, begin, on_progress)
        records = _finish(begin(store, chosen, on_progress if ranks.size == 1 else None)) if ranks.first else []
    ranks.wait_for_rank0()  # nobody reads the files before they are closed
    return records


def _finish(run: _Run) -> list[Record]:
    """Follow a run to its end, or as far as it comes, and write its rows."""
    finished = False
    try:
        if isinstance(run.schedule, ByClock):
            run.restore()
        run.follow()
        finished = True
    finally:
        records = run.publish(finished=finished)
    return records


def share_looks(
    ranks: Ranks,
    store: LookStore,
    chosen: list[int],
    begin: Callable[[LookStore, list[int]], _Run],
    on_progress: OnProgress | None,
) -> None:
    """Let all ranks make the looks that rank 0's store lacks, some images each; what is left then is to read them."""
    left = list[int]()
    if ranks.first:
        before = begin(store, chosen)
        before.restore()
        left = [index for index, active in zip(chosen, before.tracker.active, strict=True) if active]
    left = ranks.broadcast_from_rank0(left)
    size = max(1, -(-len(left) // (4 * ranks.size)))
    groups = [left[first : first + size] for first in range(0, len(left), size)]

    def work(number: int) -> tuple[list[Look], float]:
        begun, own = time.perf_counter(), LookStore(None, groups[number], 0, {}, {})
        begin(own, groups[number]).follow()
        return [look for looks in own.known.values() for look in looks], time.perf_counter() - begun

    done = len(chosen) - len(left)
    for number, (looks, seconds) in enumerate(ranks.map_in_order(len(groups), work)):
        store.append([look for look in looks if look.look >= len(store.known.get(look.idx, ()))])
        done += len(groups[number])
        if on_progress:
            made = begin(store, groups[number]).records(range(len(groups[number])))
            on_progress(Progress(done, len(chosen), made, seconds))


def _schedule(rule: StopRule, tracker: Tracker, capacity: int, unit: int, seconds_before: float) -> Schedule:
    if not isinstance(rule, BudgetStop):
        return InTurn(tracker, capacity, unit)
    if rule.seconds is None:
        return ByBudget(tracker, rule)
    return ByClock(tracker, capacity, rule.seconds - seconds_before, unit)


class _Run:
    """Follows a schedule: looks that the store knows are taken from there, others are sampled and stored.

    While the device counts one part of the work, a second thread reads the votes of the part before: decides, and
    writes. The two never hold the same images.
    """

    def __init__(
        self,
        store: LookStore,
        tracker: Tracker,
        sampler: Sampler,
        schedule: Schedule,
        indices: Sequence[int],
        labels: Sequence[int],
        live: bool,
        on_progress: OnProgress | None,
    ) -> None:
        self.store, self.tracker, self.sampler, self.on_progress = store, tracker, sampler, on_progress
        self.schedule, self.indices, self.labels = schedule, indices, labels
        self.live = live  # every image has a row at every moment, from the first votes on
        self._published = -math.inf

    def restore(self) -> None:
        """Take in all looks that the store knows."""
        while places := [place for place in range(len(self.indices)) if self._known(place)]:
            self._observe(places)

    def follow(self) -> None:
        """Do what the schedule asks for until it asks for nothing, a device full at a time."""
        schedule, capacity = self.schedule, samples_at_once(self.sampler.device)
        queue, busy, begun = deque[list[Request]](), list[int](), time.perf_counter()
        reading: Future[list[Record]] | None = None
        with ThreadPoolExecutor(max_workers=1) as reader:
            while True:
                if not queue and not busy:
                    queue.extend(self._parts(schedule.wave(), capacity))
                    if not queue:
                        return
                part = queue.popleft() if queue else []
                self._sample(part)
                if reading:
                    begun = self._report(reading.result(), begun)
                reading, busy = None, [place for place, _ in part]
                if busy:
                    if not queue:  # decided now, while nothing is being read
                        queue.extend(self._parts(schedule.wave(busy), capacity))
                    reading = reader.submit(self._read, busy)

    def _parts(self, wave: Sequence[Request], capacity: int) -> list[list[Request]]:
        """Cut a wave into parts that each fill the device once."""
        work = self.tracker.work(np.array([place for place, _ in wave], dtype=np.int64), self.sampler.micro_batch)
        numbers = (np.cumsum(work) - work) // capacity
        return [[wave[int(i)] for i in np.flatnonzero(numbers == number)] for number in np.unique(numbers)]

    def _sample(self, part: Sequence[Request]) -> None:
        """Count the votes that some requests lack."""
        lacking = [(place, stage) for place, stage in part if not self._known(place)]
        for place, stage in lacking:
            if stage and not self.sampler.holds(place):
                self.sampler.resume(place, stage, self.store.known[self.indices[place]][-1].votes)
        self.sampler.advance(lacking)

    def _read(self, places: Sequence[int]) -> list[Record]:
        """Take in the votes that images were sampled for, eagerly what came for free; return those that are done."""
        ready, done = list(places), list[int]()
        while ready:
            self._observe(ready)
            done += [place for place in ready if not self.tracker.active[place]]
            more = [place for place in ready if self.schedule.eager and self.tracker.active[place]]
            ready = [place for place in more if self._known(place) or self._covered(place)]
        for place in done:
            self.sampler.release(place)
        return self.records(done) if self.on_progress else []

    def _observe(self, places: Sequence[int]) -> None:
        """Take in the next stage of each image, and store it where it is new."""
        fresh = list[Look]()
        for place in places:
            if not self._known(place):
                stage = int(self.tracker.stage[place])
                votes, seconds = self.sampler.votes(place, stage), self.sampler.take_seconds(place)
                fresh.append(Look(self.indices[place], stage, votes.copy(), seconds))
        self.store.append(fresh)
        stages = self.tracker.stage
        votes_of = [self.store.known[self.indices[place]][stages[place]].votes for place in places]
        self.tracker.observe(places, votes_of)

    def _known(self, place: int) -> bool:
        return len(self.store.known.get(self.indices[place], ())) > int(self.tracker.stage[place])

    def _covered(self, place: int) -> bool:
        return self.sampler.covers(place, int(self.tracker.stage[place]))

    def _report(self, done: Sequence[Record], begun: float) -> float:
        """Say which images are done since a moment, keep live rows up to date, and return the moment now."""
        if self.on_progress and done:
            finished = int((~self.tracker.active).sum())
            self.on_progress(Progress(finished, len(self.indices), done, time.perf_counter() - begun))
        if self.live and time.perf_counter() - self._published > _SECONDS_BETWEEN_TABLES:
            self.publish(finished=False)
        return time.perf_counter()

    def publish(self, *, finished: bool) -> list[Record]:
        """Write the rows that there are: of images that are done or, where it is live, of all."""
        count = len(self.indices)
        records = self.records([p for p in range(count) if finished or self.live or not self.tracker.active[p]])
        self.store.publish(records, finished=finished)
        self._published = time.perf_counter()
        return records

    def records(self, places: Sequence[int]) -> list[Record]:
        """Return the certificates of images, from their looks alone."""
        looks = [self.store.known.get(self.indices[place], []) for place in places]
        indices, labels = ([whole[place] for place in places] for whole in (self.indices, self.labels))
        return certify_stored(indices, labels, looks, self.tracker.plan, self.tracker.noise)
