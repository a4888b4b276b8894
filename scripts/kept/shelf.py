"""What is kept: `results/<table>/<run>/`, a run that several tables have in one of them, and which rows a table has."""

import re
from collections import Counter

from smoothcert.errors import SmoothcertError
from smoothcert.paper.jobs import find_table, list_jobs
from smoothcert.results.naming import certificates_in, sidecar_path
from smoothcert.results.sidecar import read_sidecar
from smoothcert.training.recipes import paper_tables

WITH_WEIGHTS = ("catrs",)
"""The methods whose networks are kept, in the package."""
_TOLD = {"sigma", "n0", "n", "alpha", "images", "data", "model"}


def certificates(folder):
    """Return the results files below a folder."""
    return certificates_in(folder, below=True)


def every(path):
    """Return of how many images one was certified, by the name of a results file."""
    told = re.search(r"-skip(\d+)", path.name)
    return int(told[1]) if told else 1


def settings_of(path):
    """Return how a results file was made."""
    settings = read_sidecar(sidecar_path(path)).get("settings", {})
    if missing := _TOLD.difference(settings):
        raise SmoothcertError(f"{sidecar_path(path)} does not say {', '.join(sorted(missing))}.")
    return settings


def network_of(path):
    """Return the hash of the network that a results file is of."""
    network = settings_of(path)["model"].get("sha256")
    if network is None:
        raise SmoothcertError(f"{sidecar_path(path)} does not say the hash of its network.")
    return network


def has_corrupted_images(table):
    """Whether a table of the paper is of corrupted images."""
    return table in paper_tables() and bool(find_table(table).data)


def clean_folders(folder, run):
    """Return where a run is kept as a row of a table; what lies beside corrupted images is none."""
    return [path for path in sorted(folder.glob(f"*/{run}")) if not has_corrupted_images(path.parent.name)]


def shown_tables(folder):
    """Return the tables that something is kept of, and those whose runs are all there, kept with other tables."""
    kept = {path.name for path in folder.iterdir() if path.is_dir()}
    clean = [name for name in paper_tables() if not has_corrupted_images(name)]
    return sorted(kept.union(name for name in clean if len(kept_rows(folder, name)) == len(list_jobs(name))))


def kept_rows(folder, table):
    """Return a table's jobs and their certificates, in whichever table's folder a run that several have is kept.

    Of a table over seeds, what was trained once is left out: it says nothing of the spread.
    """
    plain = [path for path in certificates(folder) if not has_corrupted_images(path.parent.parent.name)]
    kept = {(path.parent.name, every(path)): path for path in plain}
    rows = [(job, kept.get((job.config.name, job.skip))) for job in list_jobs(table)]
    rows = [(job, path) for job, path in rows if path]
    seeds = Counter(_recipe(job) for job, _ in rows)
    return [(job, path) for job, path in rows if seeds[_recipe(job)] > 1 or len(find_table(table).seeds) == 1]


def _recipe(job):
    return job.config.name.removesuffix(f"-seed{job.config.seed}")
