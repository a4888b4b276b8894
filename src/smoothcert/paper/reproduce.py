"""The paper's tables from nothing: making their runs, in slices if need be, and reading them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import torch

from smoothcert.distributed.ranks import as_single_process, current_ranks
from smoothcert.errors import SmoothcertError
from smoothcert.paper.certify_run import certify_run
from smoothcert.paper.jobs import PROTOCOL, Job, Workplace, find_table
from smoothcert.report.corrupted.files import is_corrupted
from smoothcert.report.corrupted.grouping import read_corrupted
from smoothcert.report.corrupted.results import CorruptedResults
from smoothcert.report.tables.entries import Entry, describe
from smoothcert.results.reader import Results, certificates_in, read_results
from smoothcert.runtime.deadline import Deadline, OutOfTimeError
from smoothcert.runtime.failures import collected
from smoothcert.training.run_folder import RunFolder
from smoothcert.training.runs import OnStage, prepare_runs, train_runs

_SMALL_TOGETHER = 6  # LeNet runs on a GPU; more add nothing, see benchmarks/README.md


def reproduce(
    jobs: Sequence[Job],
    place: Workplace,
    *,
    device: torch.device | str = "cpu",
    together: int | None = None,
    data_parallel: bool = False,
    on_stage: OnStage,
    time_limit: float | None = None,
) -> None:
    """Train and certify what is not there yet, `together` runs at a time, each group certified when it is trained.

    By default that is several small networks on a GPU, else one run. A run that fails does not stop the others; what
    went wrong is raised at the end. OutOfTimeError is raised when the time is up; everything made so far is kept.

    Ranks share the work: first groups of runs, each trained by the rank that is free, unless `data_parallel` has all
    of them train each run together; then the images of every run's certification.
    """
    deadline, errors = Deadline(time_limit), list[SmoothcertError]()
    options: dict[str, Any] = {"data_dir": place.data_dir, "device": device, "on_stage": on_stage}
    unfinished = [number for number, job in enumerate(jobs) if not place.progress(job).finished]
    left = [jobs[number] for number in current_ranks().broadcast_from_rank0(unfinished)]
    groups = list(_groups(left, together, torch.device(device)))
    apart = current_ranks().size > 1 and not data_parallel
    try:
        if apart:
            errors += _train_apart(groups, place, deadline, options)
        for group in groups:
            deadline.check()
            if not apart:
                configs = [job.config for job in group]
                with collected(errors):
                    train_runs(configs, place.runs, time_limit=deadline.left, **options)
            for job in group:
                folder = place.runs / job.config.name
                if current_ranks().broadcast_from_rank0(RunFolder(folder).finished):
                    deadline.check()
                    done = {"skip": job.skip, "n": place.n, "device": device, "on_stage": on_stage, **PROTOCOL}
                    with collected(errors):
                        certify_run(folder, place.test_sets(job), time_limit=deadline.left, **done)
    except OutOfTimeError as error:
        raise OutOfTimeError(" ".join(map(str, [*errors, error]))) from error
    if errors:
        raise SmoothcertError(" ".join(map(str, errors))) from errors[0]


def _train_apart(
    groups: Sequence[Sequence[Job]], place: Workplace, deadline: Deadline, options: dict[str, Any]
) -> list[SmoothcertError]:
    """Train each group of runs on the rank that is free, after what several of them need; return what went wrong."""
    configs = [[job.config for job in group] for group in groups]
    prepare_runs([config for group in configs for config in group], place.runs, time_limit=deadline.left, **options)

    def train(number: int) -> str | None:
        try:
            with as_single_process():
                train_runs(configs[number], place.runs, time_limit=deadline.left, **options)
        except SmoothcertError as error:
            return str(error)
        return None

    return [SmoothcertError(text) for text in current_ranks().map_in_order(len(configs), train) if text]


def _groups(jobs: Sequence[Job], together: int | None, device: torch.device) -> Iterator[list[Job]]:
    """Yield jobs that train together: consecutive ones of one data set and network."""
    for (_, network), same in groupby(jobs, key=lambda job: (job.config.dataset, job.config.architecture)):
        members = list(same)
        small = device.type == "cuda" and network == "lenet"
        most = together or (_SMALL_TOGETHER if small else 1)
        for first in range(0, len(members), most):
            yield members[first : first + most]


def read_entries(name: str, jobs: Sequence[Job], place: Workplace) -> list[Entry]:
    """Return the certified rows of a table, with the paper's row each belongs to."""
    finished = [job for job in jobs if place.progress(job).finished]
    return [row_of(name, job, read_results(place.results_paths(job)[0])) for job in finished]


def row_of(name: str, job: Job, results: Results) -> Entry:
    """Return a job's certificates as a row of a table; the l_inf table's stand beside the paper's main one."""
    table = find_table(name)
    paper = (None, "") if linf_of(name) else (table.paper, job.setup)
    seed = job.config.seed if len(table.seeds) > 1 else None
    return dataclasses.replace(describe(results, job.label), paper=paper, seed=seed)


def linf_of(name: str) -> tuple[float, ...]:
    """Return the l_inf radii that a table has columns of."""
    return (2 / 255,) if name == "linf" else ()


def read_corrupted_entries(jobs: Sequence[Job], place: Workplace) -> list[CorruptedResults]:
    """Return the certified rows of a table of corrupted images, beside them the clean images where they are there."""
    entries = []
    for job in jobs:
        if place.progress(job).finished:
            paths = place.results_paths(job)
            files = [*paths, *(path for path in certificates_in(paths[0].parent) if not is_corrupted(path))]
            entries += [dataclasses.replace(entry, name=job.label) for entry in read_corrupted(files)]
    return entries
