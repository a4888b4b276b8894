"""Reproduce the tables of the CAT-RS paper: train and certify their runs, then read the results."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import torch

from smoothcert.certification.dataset import certify_dataset
from smoothcert.checkpoints.checkpoint import load_checkpoint
from smoothcert.data import select_rows
from smoothcert.distributed.ranks import as_single_process, current_ranks
from smoothcert.errors import SmoothcertError
from smoothcert.paper.jobs import PROTOCOL, Job, Workplace, find_table
from smoothcert.report.corrupted.files import is_corrupted
from smoothcert.report.corrupted.grouping import read_corrupted
from smoothcert.report.corrupted.results import CorruptedResults
from smoothcert.report.tables.entries import Entry, describe
from smoothcert.results.naming import certificates_in
from smoothcert.results.reader import read_results
from smoothcert.results.records import Results
from smoothcert.runtime.deadline import Deadline, OutOfTimeError
from smoothcert.runtime.failures import collected
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.deploy import choose_deployment
from smoothcert.training.prepare import OnStage, prepare_runs
from smoothcert.training.run_folder import RunFolder
from smoothcert.training.runs import train_runs

_SMALL_TOGETHER = 6  # LeNet runs to train at once on a GPU; more do not save time, see benchmarks/README.md


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
    """Train and certify the unfinished jobs, in groups of up to `together` runs that are trained at once.

    By default, several small networks train together on a GPU, and other runs one by one. A run that fails stops
    the others only if several ranks work on it together; otherwise, its error is raised at the end. After `time_limit`
    seconds, OutOfTimeError is raised; a later call resumes the work.

    Several ranks share the work: each trains whole groups of runs or, with `data_parallel`, all train each run
    together. Then they share the images of every certification.
    """
    deadline, errors = Deadline(time_limit), list[SmoothcertError]()
    options: dict[str, Any] = {"data_dir": place.data_dir, "device": device, "on_stage": on_stage}
    unfinished = [number for number, job in enumerate(jobs) if not place.progress(job).finished]
    remaining = [jobs[number] for number in current_ranks().broadcast_from_rank0(unfinished)]
    groups = list(_groups(remaining, together, torch.device(device)))
    separately = current_ranks().size > 1 and not data_parallel
    try:
        if separately:
            errors += _train_on_free_ranks(groups, place, deadline, options)
        for group in groups:
            deadline.check()
            if not separately:
                configs = [job.config for job in group]
                with collected(errors):
                    train_runs(configs, place.runs, time_limit=deadline.left, **options)
            for job in group:
                if current_ranks().broadcast_from_rank0(RunFolder(place.runs / job.config.name).finished):
                    deadline.check()
                    with collected(errors):
                        _certify(job, place, device, on_stage, deadline)
    except OutOfTimeError as error:
        raise OutOfTimeError(" ".join(map(str, [*errors, error]))) from error
    if errors:
        raise SmoothcertError(" ".join(map(str, errors))) from errors[0]


def _train_on_free_ranks(
    groups: Sequence[Sequence[Job]], place: Workplace, deadline: Deadline, options: dict[str, Any]
) -> list[SmoothcertError]:
    """Prepare teachers and soft labels, then train each group of runs on the next free rank. Return the errors."""
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
    """Yield groups of jobs to train together: consecutive jobs with the same dataset and network."""
    for (_, network), same in groupby(jobs, key=lambda job: (job.config.dataset, job.config.architecture)):
        members = list(same)
        small = device.type == "cuda" and network == "lenet"
        most = together or (_SMALL_TOGETHER if small else 1)
        for first in range(0, len(members), most):
            yield members[first : first + most]


def _certify(job: Job, place: Workplace, device: torch.device | str, on_stage: OnStage, deadline: Deadline) -> None:
    """Certify a trained run in the network's fastest form and precision; unfinished results are resumed."""
    run, sets = place.runs / job.config.name, place.test_sets(job)
    checkpoint = load_checkpoint(run)
    model, sigma = checkpoint.model.to(device), checkpoint.about["sigma"]
    samples = place.n * sum(len(select_rows(data, job.skip)) for data in sets)
    form, precision = choose_deployment(model, sets[0].shape, samples)
    classifier = SmoothedClassifier(model, sigma, model.num_classes, form=form, precision=precision)
    if form == "compiled":
        on_stage("compile", "the network")
    for data, path in zip(sets, place.results_paths(job), strict=True):
        title = f"{run.name} on {data.name}" if "/" in data.name else run.name
        certify_dataset(
            classifier,
            data,
            path,
            n=place.n,
            indices=select_rows(data, job.skip),
            model=checkpoint.describe(),
            on_progress=deadline.watching(on_stage("certify", title)),
            **PROTOCOL,
        )


def read_entries(name: str, jobs: Sequence[Job], place: Workplace) -> list[Entry]:
    """Return a table entry for each finished job, linked to its row in the paper."""
    finished = [job for job in jobs if place.progress(job).finished]
    return [row_of(name, job, read_results(place.results_paths(job)[0])) for job in finished]


def row_of(name: str, job: Job, results: Results) -> Entry:
    """Return the table entry for a job's results, linked to its row in the paper.

    Entries of the table `linf` are linked to rows of the main table, which include the paper's l_inf results.
    """
    table = find_table(name)
    paper = (None, "") if linf_of(name) else (table.paper, job.setup)
    seed = job.config.seed if len(table.seeds) > 1 else None
    return dataclasses.replace(describe(results, job.label), paper=paper, seed=seed)


def linf_of(name: str) -> tuple[float, ...]:
    """Return the l_inf radii of a table's columns. Only the table `linf` has such columns."""
    return (2 / 255,) if name == "linf" else ()


def read_corrupted_entries(jobs: Sequence[Job], place: Workplace) -> list[CorruptedResults]:
    """Return the results of finished jobs on corrupted images, with results on clean images where they exist."""
    entries = []
    for job in jobs:
        if place.progress(job).finished:
            paths = place.results_paths(job)
            files = [*paths, *(path for path in certificates_in(paths[0].parent) if not is_corrupted(path))]
            entries += [dataclasses.replace(entry, name=job.label) for entry in read_corrupted(files)]
    return entries
