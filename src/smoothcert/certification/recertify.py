"""Recompute certificates from stored votes for another alpha, bound or norm, without the network or torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from smoothcert.results.sidecar import write_sidecar
from smoothcert.results.verify import read_verified
from smoothcert.results.writer import write_rows
from smoothcert.runtime.atomic_files import file_hash, write_text
from smoothcert.statistics.bounds import check_count
from smoothcert.statistics.look_plan import Plan, check_reach, fixed_plan, plan_of
from smoothcert.statistics.noise import convert_radius, noise_of


@dataclass(frozen=True)
class Recertification:
    """Changes to make when certificates are recomputed; None keeps the setting of the results file.

    `classes` and `dimensions` are needed if neither the sidecar nor the dataset's name implies them.
    """

    alpha: float | None = None
    bound: str | None = None
    norm: str | None = None
    top: int | None = None
    classes: int | None = None
    dimensions: int | None = None


def recertify(
    path: Path, wanted: Recertification, *, unverified: bool = False
) -> tuple[list[Record], dict[str, Any], dict[int, list[Look]]]:
    """Recompute the certificates of a results file; return records, sidecar content and, for a sequential run, looks.

    Raise if the rows of the file do not follow from its votes, unless `unverified`.
    """
    results = read_results(path)
    settings: dict[str, Any] = dict(results.about.get("settings", {}))
    if "cascade" in settings:
        raise UsageError(f"{path} is a cascade; recompute it from the files of its levels.")
    if settings.get("task") != "certify" or not counts_path(path).exists():
        raise UsageError(f"{path} cannot be recomputed: its sidecar from `certify` or its file of votes is missing.")
    if lacking := [key for key in ("data", "sigma", "n0", "n", "alpha", "seed") if key not in settings]:
        raise UsageError(f"The sidecar of {path} lacks {', '.join(lacking)}; it was not written by `certify`.")
    if not unverified:
        results = read_verified(path)
    name = settings["data"].get("name")
    classes = _number_of("classes", wanted.classes, settings.get("classes"), classes_of(name))
    if not classes:
        raise UsageError(f"{path} does not record the number of classes; add `classes`.")
    dimensions = _number_of("dimensions", wanted.dimensions, settings["data"].get("dimensions"), dimensions_of(name))
    top = settings.get("top_k", 1) if wanted.top is None else wanted.top
    if top > 1 and settings.get("stop", {}).get("skip_wrong"):
        text = "so votes that `top` needs are missing; omit `top`, or certify again without `skip_wrong`"
        raise UsageError(f"{path} was certified with `skip_wrong`, {text}.")
    bound = wanted.bound or settings.get("bound", "two-sided" if top > 1 else "one-sided")
    noise = noise_of(settings)
    norm = wanted.norm or settings.get("norm", noise.norm)
    stored, looks = _stored(path, results, settings, classes)
    plan, indices = stored.at(settings["alpha"] if wanted.alpha is None else wanted.alpha), results.idx.tolist()
    check_reach(plan, np.array([0.5]), noise)
    seen = [looks.get(index, []) for index in indices]
    options: dict[str, Any] = {"bound": bound, "top": top, "seed": int(settings["seed"])}
    records = certify_stored(indices, results.label.tolist(), seen, plan, noise, **options)
    radii = convert_radius([record.radius for record in records], noise.norm, norm, dimensions)
    records = [replace(record, radius=float(radius)) for record, radius in zip(records, radii, strict=True)]
    source = {"file": path.name, "sha256": file_hash(path), "counts_sha256": file_hash(counts_path(path))}
    if wanted.classes:  # the new file must be recomputable without these options
        settings["classes"] = classes
    if wanted.dimensions:
        settings["data"] = {**settings["data"], "dimensions": dimensions}
    about = {"settings": _settings(settings, plan, bound, norm, top), "recertified_from": source}
    return records, {**results.about, **about}, looks if "stop" in settings else {}


def _number_of(option: str, wanted: int | None, recorded: int | None, usual: int | None) -> int | None:
    """Return the number from the user, the sidecar, or the dataset's name, in this order of precedence.

    Raise if the user's number contradicts the sidecar or is smaller than the dataset's, since the certificates might
    not hold.
    """
    if wanted is None:
        return recorded or usual
    check_count(option, wanted)
    if recorded not in (None, wanted) or wanted < (usual or 0):
        raise UsageError(f"Expected `{option}` to be {recorded or usual} for these results, but got {wanted}; omit it.")
    return wanted


def _settings(settings: Mapping[str, Any], plan: Plan, bound: str, norm: str, top: int) -> dict[str, Any]:
    """Return the settings of the recomputed results; as in `certify`, defaults (the published protocol) are omitted."""
    given = {"bound": bound, "norm": norm, "top_k": top}
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


def _stored(
    path: Path, results: Results, settings: Mapping[str, Any], classes: int
) -> tuple[Plan, dict[int, list[Look]]]:
    """Return a results file's plan and looks; with a fixed n, the looks come from the file of votes."""
    alpha, stop = float(settings["alpha"]), settings.get("stop")
    if stop:
        return plan_of(stop, alpha), read_looks(path, classes)
    table = read_vote_table(path)
    table.require_classes(classes, counts_path(path))
    votes, rows = table.dense(0, len(table), classes), {int(idx): row for row, idx in enumerate(table.idx)}
    looks = {}
    for idx, seconds in zip(results.idx.tolist(), results.seconds.tolist(), strict=True):
        if idx not in rows:
            raise SmoothcertError(
                f"{counts_path(path)} has no votes for image {idx}; resume with the same `certify` command."
            )
        looks[idx] = [Look(idx, look, stage[rows[idx]], look * seconds) for look, stage in enumerate(votes)]
    return fixed_plan(int(settings["n"]), alpha), looks
