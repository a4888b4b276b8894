"""Recompute certificates from stored votes for another alpha, bound or norm, without the network or torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.dataset_names import classes_of, dimensions_of
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.results.lock import ResultsLock
from smoothcert.results.look_store import Look, looks_text, read_looks
from smoothcert.results.naming import check_name, check_new, counts_path, looks_path
from smoothcert.results.reader import read_results, read_vote_table
from smoothcert.results.recompute import certify_stored
from smoothcert.results.records import Record, Results
from smoothcert.results.sidecar import check_from_certify, write_sidecar
from smoothcert.results.stored_protocol import StoredProtocol
from smoothcert.results.verify import read_verified
from smoothcert.results.writer import write_rows
from smoothcert.runtime.atomic_files import file_hash, write_text
from smoothcert.statistics.bounds import check_count
from smoothcert.statistics.look_plan import Plan, check_reach
from smoothcert.statistics.noise import convert_radius


def recertify(
    path: Path,
    *,
    alpha: float | None = None,
    bound: str | None = None,
    norm: str | None = None,
    top: int | None = None,
    classes: int | None = None,
    dimensions: int | None = None,
    unverified: bool = False,
) -> tuple[list[Record], dict[str, Any], dict[int, list[Look]]]:
    """Return the recomputed certificates of a results file: records, sidecar content and, for a sequential run, looks.

    An argument that is None keeps the setting of the results file. `classes` and `dimensions` are needed if neither the
    sidecar nor the dataset's name implies them. Unless `unverified`, raise if the rows do not follow from their votes.
    """
    results = read_results(path)
    settings: dict[str, Any] = dict(results.about.get("settings", {}))
    if "cascade" in settings:
        raise UsageError(f"{path} is a cascade; recompute it from the files of its levels.")
    if settings.get("task") != "certify" or not counts_path(path).exists():
        raise UsageError(f"{path} cannot be recomputed: its sidecar from `certify` or its file of votes is missing.")
    check_from_certify(path, settings, ("data", "sigma", "n0", "n", "alpha", "seed"))
    if not unverified:
        results = read_verified(path)
    changes = {"bound": bound, "norm": norm, "top_k": top}
    protocol = StoredProtocol.of({**settings, **{key: value for key, value in changes.items() if value is not None}})
    name = settings["data"].get("name")
    num_classes = _number_of("classes", classes, settings.get("classes"), classes_of(name))
    if not num_classes:
        raise UsageError(f"{path} does not record the number of classes; add `classes`.")
    size = _number_of("dimensions", dimensions, settings["data"].get("dimensions"), dimensions_of(name))
    if protocol.top > 1 and settings.get("stop", {}).get("skip_wrong"):
        text = "so votes that `top` needs are missing; omit `top`, or certify again without `skip_wrong`"
        raise UsageError(f"{path} was certified with `skip_wrong`, {text}.")
    noise, looks, indices = protocol.noise, _looks(path, results, protocol, num_classes), results.idx.tolist()
    plan = protocol.plan.at(settings["alpha"] if alpha is None else alpha)
    check_reach(plan, np.array([0.5]), noise)
    seen = [looks.get(index, []) for index in indices]
    options: dict[str, Any] = {"bound": protocol.bound, "top": protocol.top, "seed": protocol.seed}
    records = certify_stored(indices, results.label.tolist(), seen, plan, noise, **options)
    radii = convert_radius([record.radius for record in records], noise.norm, protocol.norm, size)
    records = [replace(record, radius=float(radius)) for record, radius in zip(records, radii, strict=True)]
    source = {"file": path.name, "sha256": file_hash(path), "counts_sha256": file_hash(counts_path(path))}
    if classes:  # so that the new file can be recomputed without these options
        settings["classes"] = classes
    if dimensions:
        settings["data"] = {**settings["data"], "dimensions": dimensions}
    about = {"settings": _settings(settings, plan, protocol), "recertified_from": source}
    return records, {**results.about, **about}, looks if protocol.sequential else {}


def _number_of(option: str, wanted: int | None, recorded: int | None, usual: int | None) -> int | None:
    """Return the number of classes or dimensions: from the user, else the sidecar, else the dataset's name.

    Raise if the user's number contradicts the sidecar or is smaller than the dataset's, since the certificates might
    then be false.
    """
    if wanted is None:
        return recorded or usual
    check_count(option, wanted)
    if recorded not in (None, wanted) or wanted < (usual or 0):
        raise UsageError(f"Expected `{option}` to be {recorded or usual} for these results, but got {wanted}; omit it.")
    return wanted


def _settings(settings: Mapping[str, Any], plan: Plan, protocol: StoredProtocol) -> dict[str, Any]:
    """Return the settings of the recomputed results; as in `certify`, default values are omitted."""
    given = {"bound": protocol.bound, "norm": protocol.norm, "top_k": protocol.top}
    usual = {"bound": "one-sided", "norm": None if "noise" in settings else "l2", "top_k": 1}
    kept = {key: value for key, value in settings.items() if key not in given}
    if "stop" in kept:
        kept["stop"] = {**kept["stop"], **plan.settings()}
    return {**kept, "alpha": plan.alpha, **{key: value for key, value in given.items() if value != usual[key]}}


def write_recertified(
    out: Path, records: Sequence[Record], about: Mapping[str, Any], looks: Mapping[int, Sequence[Look]]
) -> None:
    """Write recomputed certificates as a new results file, with the votes beside it."""
    check_name(out)
    with ResultsLock(out):
        check_new(out)
        if looks:
            write_text(looks_path(out), looks_text(looks))
        write_sidecar(out, about)
        write_rows(out, records)


def _looks(path: Path, results: Results, protocol: StoredProtocol, classes: int) -> dict[int, list[Look]]:
    """Return the looks of a results file; with a fixed n, they come from the file of votes."""
    if protocol.sequential:
        return read_looks(path, classes)
    table = read_vote_table(path)
    table.require_classes(classes)
    rows, stages = table.rows_of(results.idx), table.dense(0, len(table), classes)
    if len(missing := results.idx[rows < 0]):
        raise SmoothcertError(
            f"{table.source} has no votes for image {missing[0]}; resume with the same `certify` command."
        )
    images = zip(results.idx.tolist(), rows, results.seconds.tolist(), strict=True)
    return {
        idx: [Look(idx, look, votes[row], look * seconds) for look, votes in enumerate(stages)]
        for idx, row, seconds in images
    }
