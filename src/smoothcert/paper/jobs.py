"""The runs of a paper table as jobs, and their status.

Tables share runs: each run has one folder, named by recipe and seed, and is trained once.
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
from smoothcert.results.naming import counts_path, results_name, sidecar_path
from smoothcert.results.sidecar import read_sidecar
from smoothcert.runtime.atomic_files import file_hash
from smoothcert.training.config import TrainConfig
from smoothcert.training.known_methods import method_title
from smoothcert.training.recipes import PaperTable, load_recipe, paper_tables
from smoothcert.training.run_folder import RunFolder

PROTOCOL: dict[str, Any] = {"n0": 100, "alpha": 0.001}


@dataclass(frozen=True)
class Job:
    """A run in a table of the CAT-RS paper. It is certified on every `skip`-th image.

    `setup` selects the run's row in paper.csv. `data` names a corrupted dataset to certify instead of the clean test
    images.
    """

    config: TrainConfig
    setup: str
    skip: int
    data: str = ""

    @property
    def label(self) -> str:
        """Name of the job's row in the table."""
        name = method_title(self.config.method)
        return name if self.setup in ("", "-", "5 seeds") else f"{name}, {self.setup}"


@dataclass(frozen=True)
class JobStatus:
    """Progress of a job: its run is `trained` or not, and `images` of `total` images are certified."""

    job: Job
    trained: bool
    images: int
    total: int

    @property
    def finished(self) -> bool:
        """True if nothing is left to do."""
        return self.trained and self.images == self.total


def find_table(name: str) -> PaperTable:
    """Return the paper's table with this name. Raise if there is none."""
    tables = paper_tables()
    if name not in tables:
        raise unknown_name("table", name, tables)
    return tables[name]


def list_jobs(name: str, *only: str, skip: int | None = None, **overrides: Any) -> list[Job]:
    """Return the jobs of a table.

    `only` contains glob patterns for the names of recipes or runs, with or without the dataset's name; without
    patterns, the jobs of all rows are returned. `skip` replaces the table's value, and `overrides` replace fields of
    the training configurations.

    >>> [job.config.name for job in list_jobs("variance", "catrs-0.25")][:2]
    ['mnist-catrs-0.25', 'mnist-catrs-0.25-seed1']
    >>> [job.config.name for job in list_jobs("variance", "catrs-*-seed4")][:2]
    ['mnist-catrs-0.25-seed4', 'mnist-catrs-0.50-seed4']
    """
    table, jobs, matched = find_table(name), [], set[str]()
    for recipe, setup in table.rows:
        for seed in table.seeds:
            run = f"{recipe}-seed{seed}" if seed else recipe
            matching = {g for g in only for row in (recipe, run) if fnmatch(row, g) or fnmatch(row, f"*-{g}")}
            if matching or not only:
                config = load_recipe(recipe, name=run, seed=seed, **overrides)
                jobs.append(Job(config, setup, skip or table.skip, table.data))
            matched |= matching
    for glob in only:
        if glob not in matched:
            rows = ", ".join(recipe for recipe, _ in table.rows)
            raise UsageError(f"No row of the table {name} matches {glob!r}; its rows are {rows}.")
    return jobs


@dataclass(frozen=True)
class Workplace:
    """The folder of runs, the data folder, and the number of noise samples per certified image."""

    runs: Path
    data_dir: str | Path | None = None
    n: int = 100_000

    def test_sets(self, job: Job) -> list[ImageData]:
        """Return the datasets that a job certifies: the clean test images, or one dataset per corruption."""
        config = job.config
        return _test_sets(config.dataset, config.resize, config.crop, job.data, self.data_dir)

    def results_paths(self, job: Job) -> list[Path]:
        """Return the results files of a job, one per dataset."""
        folder, sigma = self.runs / job.config.name, job.config.sigma
        return [
            folder / results_name("certify", data.name, data.split, sigma, self.n, skip=job.skip)
            for data in self.test_sets(job)
        ]

    def as_begun(self, job: Job) -> Job:
        """Return the job with the training precision of its existing run, or unchanged if the run does not exist."""
        existing = RunFolder(self.runs / job.config.name).read_config()
        if existing is None:
            return job
        return dataclasses.replace(job, config=dataclasses.replace(job.config, precision=existing.precision))

    def progress(self, job: Job) -> JobStatus:
        """Determine the status of a job from its files. Raise UsageError if they were made with different settings."""
        run = RunFolder(self.runs / job.config.name)
        if run.config.is_file():  # a missing file is reported by training, without stopping other runs
            run.check(job.config)
        network = file_hash(run.model) if run.finished else None
        done = total = 0
        for path, data in zip(self.results_paths(job), self.test_sets(job), strict=True):
            selected = len(select_rows(data, job.skip))
            done, total = done + min(self._rows(path, data, network), selected), total + selected
        return JobStatus(job, run.finished, done, total)

    def _rows(self, path: Path, data: ImageData, network: str | None) -> int:
        """Return the number of images with results and stored votes; raise if these were made with other settings."""
        files = (path, counts_path(path))
        if not all(file.is_file() for file in (*files, sidecar_path(path))):
            return 0
        rows = min(file.read_bytes().count(b"\n") - 1 for file in files)
        if rows < 1:
            return 0
        settings = read_sidecar(sidecar_path(path)).get("settings", {})
        other = [key for key, value in PROTOCOL.items() if settings.get(key) != value]
        # Certification skips complete files, so nothing else checks that they belong to the current network.
        other += ["network"] if network and settings.get("model", {}).get("sha256") != network else []
        other += ["dataset"] if settings.get("data", {}).get("sha256") != data.fingerprint else []
        if other:
            raise UsageError(f"{path} was made with a different {' and '.join(other)}; move it elsewhere.")
        return rows


@lru_cache(maxsize=4)
def _test_sets(dataset: str, resize: int, crop: int, corrupted: str, data_dir: str | Path | None) -> list[ImageData]:
    suite = find_corrupted(corrupted, data_dir) if corrupted else None
    if suite is None:
        return [load_dataset(dataset, "test", data_dir, resize=resize or None, crop=crop or None)]
    if suite.missing:
        raise SmoothcertError(f"{suite.name} is incomplete: add {', '.join(suite.missing)} to {suite.folder}.")
    return [suite.load(name) for name in suite.corruptions]
