"""Layout of `results/<table>/<run>/`. A run that belongs to several tables is stored under one of them."""

import re
from collections import Counter

from smoothcert.errors import SmoothcertError
from smoothcert.paper.jobs import find_table, list_jobs
from smoothcert.results.naming import certificates_in, sidecar_path
from smoothcert.results.sidecar import read_sidecar
from smoothcert.training.recipes import paper_tables

WITH_WEIGHTS = ("catrs",)
"""Methods whose weights are kept, as bundled pretrained models."""
SPARSER = {"mnist-c": (10,), **dict.fromkeys(("cifar10", "linf"), (5,))}
"""Larger steps between images that are also accepted, by table, where the table's own step would take hours."""
_REQUIRED = {"sigma", "n0", "n", "alpha", "images", "data", "model"}


def certificates(folder):
    """Return the results files below a folder."""
    return certificates_in(folder, below=True)


def every(path):
    """Return the step between certified images, from the name of a results file."""
    match = re.search(r"-skip(\d+)", path.name)
    return int(match[1]) if match else 1


def settings_of(path):
    """Return the settings in the sidecar of a results file."""
    settings = read_sidecar(sidecar_path(path)).get("settings", {})
    if missing := _REQUIRED.difference(settings):
        raise SmoothcertError(f"{sidecar_path(path)} lacks {', '.join(sorted(missing))}.")
    return settings


def network_of(path):
    """Return the hash of the network that a results file certifies."""
    network = settings_of(path)["model"].get("sha256")
    if network is None:
        raise SmoothcertError(f"{sidecar_path(path)} lacks the hash of its network.")
    return network


def has_corrupted_images(table):
    """Return True if a table of the paper is about corrupted images."""
    return table in paper_tables() and bool(find_table(table).data)


def clean_folders(folder, run):
    """Return the folders that hold a run's certificates as a row of a table of clean images."""
    return [path for path in sorted(folder.glob(f"*/{run}")) if not has_corrupted_images(path.parent.name)]


def shown_tables(folder):
    """Return the tables that have a folder, and those whose runs are all kept in folders of other tables."""
    kept = {path.name for path in folder.iterdir() if path.is_dir()}
    clean = [name for name in paper_tables() if not has_corrupted_images(name)]
    return sorted(kept.union(name for name in clean if len(kept_rows(folder, name)) == len(list_jobs(name))))


def kept_jobs(folder, table):
    """Return all jobs of a table, each with its results file on the most images, or None if none is kept."""
    plain = [path for path in certificates(folder) if not has_corrupted_images(path.parent.parent.name)]
    kept = {(path.parent.name, every(path)): path for path in plain}
    found = []
    for job in list_jobs(table):
        paths = [kept.get((job.config.name, skip)) for skip in (job.skip, *SPARSER.get(table, ()))]
        found.append((job, next(filter(None, paths), None)))
    return found


def kept_rows(folder, table):
    """Return the kept jobs of a table with their results files.

    A table over seeds omits recipes with a single seed, which say nothing about the spread.
    """
    rows = [(job, path) for job, path in kept_jobs(folder, table) if path]
    seeds = Counter(recipe_of(job) for job, _ in rows)
    return [(job, path) for job, path in rows if seeds[recipe_of(job)] > 1 or len(find_table(table).seeds) == 1]


def recipe_of(job):
    """Return the name of a job's recipe, which its seeds share."""
    return job.config.name.removesuffix(f"-seed{job.config.seed}")
