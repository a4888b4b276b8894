"""Sequential certification: sample each image only until the stopping rule needs no more samples."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import Any

import numpy as np

from smoothcert.certification.job import DatasetJob, Progress
from smoothcert.certification.protocol import SamplingProtocol
from smoothcert.certification.sampler import Sampler
from smoothcert.certification.scheduler import ByBudget, InTurn, Request, Tracker
from smoothcert.errors import UsageError
from smoothcert.results.look_store import Look, LooksInMemory, LookStore
from smoothcert.results.recompute import certify_stored
from smoothcert.results.records import Record
from smoothcert.smoothing.counting import samples_at_once
from smoothcert.statistics.look_plan import check_reach
from smoothcert.statistics.stopping import BudgetStop

OnRecords = Callable[[Progress[Record]], None]
_SECONDS_BETWEEN_WRITES = 30.0  # interval at which the rows of a budget run are rewritten


def certify_until_decided(
    job: DatasetJob, protocol: SamplingProtocol, batch: int | None, on_progress: OnRecords | None
) -> list[Record]:
    """Sample the images of a job until the stopping rule needs no more samples, and return all records.

    The votes of every look are stored beside the results; looks that an interrupted run has stored are not sampled
    again.
    """
    rule, noise, ranks = protocol.stop, job.classifier.noise, job.ranks
    classes = job.classifier.num_classes
    assert rule is not None
    assert classes is not None
    check_reach(protocol.plan, rule.needs(noise), noise)
    if ranks.size > 1 and isinstance(rule, BudgetStop):
        raise UsageError("A budget cannot be shared by several processes; divide the images with `shard` instead.")

    def begin(store: LooksInMemory, indices: list[int], on_progress: OnRecords | None = None) -> _SequentialRun:
        return _SequentialRun(job, protocol, store, indices, batch, on_progress)

    out = job.out
    with LookStore(out, job.indices, classes, job.settings, job.segment) if out else LooksInMemory() as store:
        if ranks.size > 1:
            _share_looks(job, store, begin, on_progress)
            on_progress = None  # all votes are counted by now; rank 0 only reads the stored looks
        records = begin(store, job.indices, on_progress).finish() if ranks.first else []
    ranks.wait_for_rank0()  # until the files are closed
    return records


def _share_looks(
    job: DatasetJob,
    store: LooksInMemory,
    begin: Callable[[LooksInMemory, list[int]], _SequentialRun],
    on_progress: OnRecords | None,
) -> None:
    """Distribute the missing looks among the ranks, in groups of images."""
    ranks, unfinished = job.ranks, list[int]()
    if ranks.first:
        stored = begin(store, job.indices)
        stored.restore()
        unfinished = [index for index, active in zip(job.indices, stored.tracker.active, strict=True) if active]
    unfinished = ranks.broadcast_from_rank0(unfinished)
    size = max(1, -(-len(unfinished) // (4 * ranks.size)))
    groups = [unfinished[first : first + size] for first in range(0, len(unfinished), size)]

    def work(number: int) -> tuple[list[Look], float]:
        started, own = perf_counter(), LooksInMemory()
        begin(own, groups[number]).follow_schedule()
        return [look for looks in own.known.values() for look in looks], perf_counter() - started

    def restore(value: Any) -> tuple[list[Look], float]:
        looks, seconds = value
        return [Look(idx, look, np.array(votes, np.int64), spent) for idx, look, votes, spent in looks], seconds

    done = len(job.indices) - len(unfinished)
    for number, (looks, seconds) in enumerate(ranks.map_in_order(len(groups), work, restore)):
        store.append([look for look in looks if look.look >= len(store.known.get(look.idx, ()))])
        done += len(groups[number])
        if on_progress:
            records = begin(store, groups[number]).records(range(len(groups[number])))
            on_progress(Progress(done, len(job.indices), records, seconds))


class _SequentialRun:
    """Sequential run: follows a schedule, reuses looks that are already stored, and samples and stores the others.

    While the device counts one part of the work, a second thread reads the votes of the previous part, decides which
    images are finished, and stores the looks. The two threads never work on the same images. Images are identified by
    their place in `indices`.
    """

    def __init__(
        self,
        job: DatasetJob,
        protocol: SamplingProtocol,
        store: LooksInMemory,
        indices: list[int],
        batch: int | None,
        on_progress: OnRecords | None,
    ) -> None:
        rule, noise = protocol.stop, job.classifier.noise
        assert rule is not None
        self.store, self.indices, self.on_progress = store, indices, on_progress
        self.labels = job.data.labels[indices].tolist()
        self.tracker = Tracker(protocol.plan, rule, noise, self.labels, protocol.n0)
        self.sampler = Sampler(job.classifier, job.data, indices, protocol.edges, seed=protocol.seed, batch=batch)
        self.capacity = samples_at_once(job.device)
        self.live = isinstance(rule, BudgetStop)  # the results file always has a row for every image
        self.schedule: InTurn | ByBudget = InTurn(self.tracker, self.capacity, self.sampler.micro_batch)
        if isinstance(rule, BudgetStop):
            self.schedule = ByBudget(self.tracker, rule)
        self._published = -math.inf

    def finish(self) -> list[Record]:
        """Follow the schedule, and write the rows even if the run is interrupted."""
        finished = False
        try:
            self.follow_schedule()
            finished = True
        finally:
            records = self.publish(finished=finished)
        return records

    def restore(self) -> None:
        """Process all looks that are already stored."""
        while places := [place for place in range(len(self.indices)) if self._is_stored(place)]:
            self._observe(places)

    def follow_schedule(self) -> None:
        """Sample what the schedule requests, one device load at a time, until it requests nothing."""
        queue, busy, started = deque[list[Request]](), list[int](), perf_counter()
        reading: Future[list[Record]] | None = None
        with ThreadPoolExecutor(max_workers=1) as reader:
            while True:
                if not queue and not busy:
                    queue.extend(self._device_loads(self.schedule.wave()))
                    if not queue:
                        return
                part = queue.popleft() if queue else []
                self._sample(part)
                if reading:
                    started = self._report(reading.result(), started)
                reading, busy = None, [place for place, _ in part]
                if busy:
                    if not queue:  # decide now, while nothing is being read
                        queue.extend(self._device_loads(self.schedule.wave(busy)))
                    reading = reader.submit(self._read, busy)

    def _device_loads(self, wave: Sequence[Request]) -> list[list[Request]]:
        """Split a wave of requests into parts, each of which fills the device once."""
        work = self.tracker.work(np.array([place for place, _ in wave], dtype=np.int64), self.sampler.micro_batch)
        numbers = (np.cumsum(work) - work) // self.capacity
        return [[wave[int(i)] for i in np.flatnonzero(numbers == number)] for number in np.unique(numbers)]

    def _sample(self, part: Sequence[Request]) -> None:
        """Count the votes of requests whose votes are not stored yet."""
        missing = [(place, stage) for place, stage in part if not self._is_stored(place)]
        for place, stage in missing:
            if stage and not self.sampler.holds(place):
                self.sampler.resume(place, stage, self.store.known[self.indices[place]][-1].votes)
        self.sampler.advance(missing)

    def _read(self, places: Sequence[int]) -> list[Record]:
        """Process new votes of images and any later looks already available; return the records of finished images."""
        ready, done = list(places), list[int]()
        while ready:
            self._observe(ready)
            done += [place for place in ready if not self.tracker.active[place]]
            # A budget is spent in waves, so its images wait for the next wave.
            more = [place for place in ready if self.tracker.active[place] and not self.live]
            ready = [place for place in more if self._is_stored(place) or self._is_sampled(place)]
        for place in done:
            self.sampler.release(place)
        return self.records(done) if self.on_progress else []

    def _observe(self, places: Sequence[int]) -> None:
        """Store the votes of each image's next stage if they are new, and pass them to the tracker."""
        fresh = list[Look]()
        for place in places:
            if not self._is_stored(place):
                stage = int(self.tracker.stage[place])
                votes, seconds = self.sampler.votes(place, stage), self.sampler.take_seconds(place)
                fresh.append(Look(self.indices[place], stage, votes.copy(), seconds))
        self.store.append(fresh)
        stages = self.tracker.stage
        votes_of = [self.store.known[self.indices[place]][stages[place]].votes for place in places]
        self.tracker.observe(places, votes_of)

    def _is_stored(self, place: int) -> bool:
        return len(self.store.known.get(self.indices[place], ())) > int(self.tracker.stage[place])

    def _is_sampled(self, place: int) -> bool:
        return self.sampler.covers(place, int(self.tracker.stage[place]))

    def _report(self, done: Sequence[Record], started: float) -> float:
        """Report finished images, refresh the rows of a budget run, and return the current time."""
        if self.on_progress and done:
            finished = int((~self.tracker.active).sum())
            self.on_progress(Progress(finished, len(self.indices), done, perf_counter() - started))
        if self.live and perf_counter() - self._published > _SECONDS_BETWEEN_WRITES:
            self.publish(finished=False)
        return perf_counter()

    def publish(self, *, finished: bool) -> list[Record]:
        """Write results for finished images, or for all images in live mode."""
        everyone = finished or self.live
        records = self.records([p for p in range(len(self.indices)) if everyone or not self.tracker.active[p]])
        self.store.publish(records, finished=finished)
        self._published = perf_counter()
        return records

    def records(self, places: Sequence[int]) -> list[Record]:
        """Compute the certificates of images from their stored looks."""
        looks = [self.store.known.get(self.indices[place], []) for place in places]
        indices, labels = ([whole[place] for place in places] for whole in (self.indices, self.labels))
        return certify_stored(indices, labels, looks, self.tracker.plan, self.tracker.noise)
