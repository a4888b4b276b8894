"""The paper's tables from nothing: which runs they need, making them in slices if need be, and reading them.

Runs are shared between tables: each has one folder, by its recipe's name and seed, and is made once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from smoothcert.config import TrainConfig
from smoothcert.data import load_dataset, select
from smoothcert.deadline import Deadline
from smoothcert.errors import UsageError, unknown_name
from smoothcert.pipeline import OnStage, certify_run, results_name, train_runs
from smoothcert.recipes import PaperTable, load_recipe, paper_tables
from smoothcert.report.paper import METHODS
from smoothcert.report.table import Entry, describe
from smoothcert.results import read_results
from smoothcert.runs import RunFolder

_UNKNOWN_YET = ("cifar10-c", "mnist-c")


@dataclass(frozen=True)
class Job:
    """A run that a table needs: its configuration, its row, and every how many-th image is certified."""

    config: TrainConfig
    setup: str
    skip: int

    @property
    def label(self) -> str:
        """What the table calls it."""
        name = METHODS.get(self.config.method, self.config.method)
        return name if self.setup in ("", "-", "5 seeds") else f"{name}, {self.setup}"


@dataclass(frozen=True)
class Progress:
    """How far a job is."""

    job: Job
    trained: bool
    images: int
    total: int

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.trained and self.images == self.total


def find_table(name: str) -> PaperTable:
    """Return a table of the paper by its name."""
    tables = paper_tables()
    if name not in tables:
        raise unknown_name("table", name, tables)
    if name in _UNKNOWN_YET:
        raise UsageError(f"The table {name} needs corrupted images, which cannot be read yet.")
    return tables[name]


def list_jobs(name: str, only: str = "*", **overrides: Any) -> list[Job]:
    """Return the runs a table needs; `only` is a glob for the recipe's name, with or without its data set.

    >>> [job.config.name for job in list_jobs("variance", "catrs-0.25")][:2]
    ['mnist-catrs-0.25', 'mnist-catrs-0.25-seed1']
    """
    table, jobs = find_table(name), []
    for recipe, setup in table.rows:
        if any(fnmatch(recipe, pattern) for pattern in (only, f"*-{only}")):
            for seed in table.seeds:
                names = {"name": recipe, "seed": seed} if seed == 0 else {"name": f"{recipe}-seed{seed}", "seed": seed}
                jobs.append(Job(load_recipe(recipe, **names, **overrides), setup, table.skip))
    if not jobs:
        raise UsageError(
            f"No row of the table {name} matches {only!r}; its rows are {', '.join(r for r, _ in table.rows)}."
        )
    return jobs


def results_path(job: Job, runs: Path, data_dir: str | Path | None, n: int) -> Path:
    """Return where a job's certificates lie."""
    data = load_dataset(job.config.dataset, "test", data_dir)
    return runs / job.config.name / results_name("certify", data, job.config.sigma, n, job.skip)


def progress_of(jobs: Sequence[Job], runs: Path, data_dir: str | Path | None, n: int) -> list[Progress]:
    """Return how far each job is, from the files that are there."""
    found = []
    for job in jobs:
        path = results_path(job, runs, data_dir, n)
        total = len(select(len(load_dataset(job.config.dataset, "test", data_dir)), job.skip))
        done = sum(1 for _ in path.open()) - 1 if path.is_file() else 0
        found.append(Progress(job, RunFolder(runs / job.config.name).finished, max(0, done), total))
    return found


def reproduce(
    jobs: Sequence[Job],
    runs: Path,
    *,
    n: int = 100_000,
    data_dir: str | Path | None = None,
    device: torch.device | str = "cpu",
    together: int = 1,
    on_stage: OnStage,
    time_limit: float | None = None,
) -> None:
    """Train and certify what is not there yet, `together` runs at a time, each group certified when it is trained.

    OutOfTimeError is raised when the time is up; everything made so far is kept.
    """
    deadline = Deadline(time_limit)
    options: dict[str, Any] = {"data_dir": data_dir, "device": device, "on_stage": on_stage}
    left = [item.job for item in progress_of(jobs, runs, data_dir, n) if not item.finished]
    for group in _groups(left, together):
        deadline.check()
        train_runs([job.config for job in group], runs, time_limit=deadline.left, **options)
        for job in group:
            deadline.check()
            certify_run(runs / job.config.name, skip=job.skip, n=n, time_limit=deadline.left, **options)


def _groups(jobs: Sequence[Job], most: int) -> Iterator[list[Job]]:
    """Yield jobs that train together: consecutive ones of one data set and network."""
    for _, same in groupby(jobs, key=lambda job: (job.config.dataset, job.config.architecture)):
        members = list(same)
        for first in range(0, len(members), most):
            yield members[first : first + most]


def read_entries(name: str, jobs: Sequence[Job], runs: Path, data_dir: str | Path | None, n: int) -> list[Entry]:
    """Return the certified rows of a table, with the paper's row each belongs to."""
    table, entries = find_table(name), []
    for item in progress_of(jobs, runs, data_dir, n):
        if item.finished:
            entry = describe(read_results(results_path(item.job, runs, data_dir, n)), item.job.label)
            entries.append(dataclasses.replace(entry, paper=(table.paper, item.job.setup)))
    return entries
