"""The runs that a table of the paper needs, and how far each is.

Runs are shared between tables: each has one folder, by its recipe's name and seed, and is made once.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import Any

from smoothcert.data import ImageData, find_corrupted, load_dataset, select_rows
from smoothcert.errors import SmoothcertError, UsageError, unknown_name
from smoothcert.report.tables.paper_numbers import METHODS
from smoothcert.results.naming import counts_path, results_name, sidecar_path
from smoothcert.results.sidecar import read_sidecar
from smoothcert.runtime.atomic_files import file_hash
from smoothcert.training.config import TrainConfig
from smoothcert.training.recipes import PaperTable, load_recipe, paper_tables
from smoothcert.training.run_folder import RunFolder

PROTOCOL: dict[str, Any] = {"n0": 100, "alpha": 0.001}


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
        return [
            folder / results_name("certify", data.name, data.split, sigma, self.n, skip=job.skip)
            for data in self.test_sets(job)
        ]

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
