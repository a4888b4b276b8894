"""The paper's tables from nothing: which runs they need, making them in slices if need be, and reading them.

Runs are shared between tables: each has one folder, by its recipe's name and seed, and is made once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from smoothcert.config import TrainConfig
from smoothcert.data import ImageData, find_corrupted, load_dataset, select_rows
from smoothcert.deadline import Deadline, OutOfTimeError
from smoothcert.engine.agreement import decide
from smoothcert.engine.ranks import alone, joined
from smoothcert.engine.sharing import share_out
from smoothcert.errors import SmoothcertError, UsageError, unknown_name
from smoothcert.failures import collected
from smoothcert.pipeline import OnStage, certify_run, prepare_runs, results_name, train_runs
from smoothcert.recipes import PaperTable, load_recipe, paper_tables
from smoothcert.report.corrupted import CorruptedResults
from smoothcert.report.corrupted_files import is_corrupted
from smoothcert.report.corrupted_networks import read_corrupted
from smoothcert.report.paper import METHODS
from smoothcert.report.table import Entry, describe
from smoothcert.results import Results, certificates_in, counts_path, read_results, read_sidecar, sidecar_path
from smoothcert.runs import RunFolder
from smoothcert.storage import file_hash

PROTOCOL: dict[str, Any] = {"n0": 100, "alpha": 0.001}
_SMALL_TOGETHER = 6  # LeNet runs on a GPU; more add nothing, see benchmarks/README.md


@dataclass(frozen=True)
class Job:
    """A run that a table needs: its configuration, its row, and every how many-th image is certified.

    `data` names a corrupted set, where it is not the run's own test images that are.
    """

    config: TrainConfig
    setup: str
    skip: int
    data: str = ""

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
    return tables[name]


def list_jobs(name: str, *only: str, skip: int | None = None, **overrides: Any) -> list[Job]:
    """Return the runs a table needs; `only` are globs for the recipe's or run's name, with or without its data set.

    `skip` certifies fewer images than the table does.

    >>> [job.config.name for job in list_jobs("variance", "catrs-0.25")][:2]
    ['mnist-catrs-0.25', 'mnist-catrs-0.25-seed1']
    >>> [job.config.name for job in list_jobs("variance", "catrs-*-seed4")][:2]
    ['mnist-catrs-0.25-seed4', 'mnist-catrs-0.50-seed4']
    """
    table, jobs, fitting = find_table(name), [], set[str]()
    for recipe, setup in table.rows:
        for seed in table.seeds:
            run = f"{recipe}-seed{seed}" if seed else recipe
            found = {glob for glob in only for row in (recipe, run) if fnmatch(row, glob) or fnmatch(row, f"*-{glob}")}
            if found or not only:
                config = load_recipe(recipe, name=run, seed=seed, **overrides)
                jobs.append(Job(config, setup, skip or table.skip, table.data))
            fitting |= found
    for glob in only:
        if glob not in fitting:
            rows = ", ".join(recipe for recipe, _ in table.rows)
            raise UsageError(f"No row of the table {name} matches {glob!r}; its rows are {rows}.")
    return jobs


@dataclass(frozen=True)
class Workplace:
    """Where jobs are done: the folder of runs, the data, and the noises an image is certified with."""

    runs: Path
    data_dir: str | Path | None = None
    n: int = 100_000

    def test_sets(self, job: Job) -> list[ImageData]:
        """Return the images a job certifies: its test images, or every corruption of them."""
        config = job.config
        return _test_sets(config.dataset, config.resize, config.crop, job.data, self.data_dir)

    def results_paths(self, job: Job) -> list[Path]:
        """Return where a job's certificates lie."""
        folder, sigma = self.runs / job.config.name, job.config.sigma
        return [folder / results_name("certify", data, sigma, self.n, job.skip) for data in self.test_sets(job)]

    def as_begun(self, job: Job) -> Job:
        """Return a job in the precision its run was begun with, whatever the recipe's: a table may mix them."""
        before = RunFolder(self.runs / job.config.name).read_config()
        if before is None:
            return job
        return dataclasses.replace(job, config=dataclasses.replace(job.config, precision=before.precision))

    def progress(self, job: Job) -> Progress:
        """Return how far a job is, from its files; a run or certificates made with other settings are refused."""
        run = RunFolder(self.runs / job.config.name)
        if run.config.is_file():
            run.open(job.config)
        network = file_hash(run.model) if run.finished else None
        totals = [len(select_rows(data, job.skip)) for data in self.test_sets(job)]
        done = [
            min(self._rows(path, data, network), total)
            for path, data, total in zip(self.results_paths(job), self.test_sets(job), totals, strict=True)
        ]
        return Progress(job, run.finished, sum(done), sum(totals))

    def _rows(self, path: Path, data: ImageData, network: str | None) -> int:
        """Return how many images of a results file are done: those whose row and votes are there."""
        files = (path, counts_path(path))
        if not all(file.is_file() for file in (*files, sidecar_path(path))):
            return 0
        rows = min(file.read_bytes().count(b"\n") - 1 for file in files)
        if rows < 1:
            return 0
        made = read_sidecar(sidecar_path(path)).get("settings", {})
        other = [key for key, value in PROTOCOL.items() if made.get(key) != value]
        # A finished file is not opened again, so nobody else would notice that it is of an earlier network.
        other += ["network"] if network and made.get("model", {}).get("sha256") != network else []
        other += ["data set"] if made.get("data", {}).get("sha256") != data.fingerprint else []
        if other:
            raise UsageError(f"{path} was made with another {', '.join(other)}; move it away.")
        return rows


@lru_cache(maxsize=4)
def _test_sets(dataset: str, resize: int, crop: int, corrupted: str, data_dir: str | Path | None) -> list[ImageData]:
    found = find_corrupted(corrupted, data_dir) if corrupted else None
    if found is None:
        return [load_dataset(dataset, "test", data_dir, resize=resize or None, crop=crop or None)]
    if found.missing:
        raise SmoothcertError(f"{found.name} lacks {', '.join(found.missing)} in {found.folder}.")
    return [found.load(name) for name in found.corruptions]


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
    left = [jobs[number] for number in decide(joined(), unfinished)]
    groups = list(_groups(left, together, torch.device(device)))
    apart = joined().size > 1 and not data_parallel
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
                if decide(joined(), RunFolder(folder).finished):
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

    def train(number: int) -> SmoothcertError | None:
        try:
            with alone():
                train_runs(configs[number], place.runs, time_limit=deadline.left, **options)
        except SmoothcertError as error:
            return error
        return None

    return [error for error in share_out(joined(), len(configs), train) if error]


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
