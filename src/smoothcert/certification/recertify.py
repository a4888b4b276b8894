"""Certificates from stored votes, at another alpha, bound or norm, without the network. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.dataset_names import classes_of, dimensions_of
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.results.look_store import Look, check_new, looks_path, looks_text, read_looks
from smoothcert.results.reader import Record, Results, counts_path, read_results, read_votes, write_rows, write_sidecar
from smoothcert.runtime.atomic_files import file_hash, write_text
from smoothcert.statistics.bounds import check_count
from smoothcert.statistics.certify import bound_uniforms, certify_looks
from smoothcert.statistics.look_plan import Plan, check_reach, fixed_plan, plan_of
from smoothcert.statistics.noise import Noise, convert_radius, noise_of

_AT_ONCE = 256  # images per array of looks


def certify_stored(
    indices: Sequence[int],
    labels: Sequence[int],
    looks: Sequence[Sequence[Look]],
    plan: Plan,
    noise: Noise,
    *,
    bound: str = "one-sided",
    top: int = 1,
    seed: int = 0,
) -> list[Record]:
    """Compute certificates from the stored looks of images; the first look of each is the selection.

    With `top` > 1 the certified class is the label, which does not depend on the votes.
    """
    records = list[Record]()
    for first in range(0, len(indices), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        selection, counts, reached = _arrays(looks[part])
        chosen = np.asarray(labels[part]) if top > 1 else selection.argmax(axis=1)
        uniforms = bound_uniforms(seed, indices[part]) if bound == "randomised" else None
        found = certify_looks(chosen, counts, reached, plan, noise, bound, top=top, uniforms=uniforms)
        answers = found.prediction, found.radius
        rows = zip(indices[part], labels[part], looks[part], *answers, selection, counts, reached, strict=True)
        for index, label, seen, predict, radius, votes, looked, number in rows:
            last = looked[number - 1].tolist() if number else []
            seconds = sum(look.seconds for look in seen)
            records.append(Record(index, label, int(predict), float(radius), seconds, votes.tolist(), last))
    return records


def _arrays(
    looks: Sequence[Sequence[Look]],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Arrange looks as selection [images, classes], counts [images, looks, classes] and number of looks [images]."""
    classes = max((len(look.votes) for seen in looks for look in seen), default=1)
    reached = np.array([max(0, len(seen) - 1) for seen in looks], dtype=np.int64)
    selection = np.zeros((len(looks), classes), dtype=np.int64)
    counts = np.zeros((len(looks), max(1, reached.max(initial=0)), classes), dtype=np.int64)
    for row, seen in enumerate(looks):
        for look in seen:
            (selection[row] if look.look == 0 else counts[row, look.look - 1])[:] = look.votes
    return selection, counts, reached


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


def recertify(path: Path, wanted: Recertification) -> tuple[list[Record], dict[str, Any], dict[int, list[Look]]]:
    """Recompute the certificates of a results file; return records, sidecar content and the looks behind them."""
    results = read_results(path)
    settings: dict[str, Any] = dict(results.about.get("settings", {}))
    if settings.get("task") != "certify" or not counts_path(path).exists():
        raise UsageError(f"{path} has no sidecar and votes beside it, from which certificates could be recomputed.")
    if lacking := [key for key in ("data", "sigma", "n0", "n", "alpha", "seed") if key not in settings]:
        raise UsageError(f"The sidecar of {path} lacks {', '.join(lacking)}; it was not written by `certify`.")
    name = settings["data"].get("name")
    classes = _number_of("classes", wanted.classes, settings.get("classes"), classes_of(name))
    if not classes:
        raise UsageError(f"{path} does not record the number of classes; add `--classes`.")
    dimensions = _number_of("dimensions", wanted.dimensions, settings["data"].get("dimensions"), dimensions_of(name))
    top = settings.get("top_k", 1) if wanted.top is None else wanted.top
    if top > 1 and settings.get("stop", {}).get("skip_wrong"):
        raise UsageError(f"{path} was made with `--skip-wrong`: the images that `--top-k` is about have no votes.")
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
    about = {"settings": _settings(settings, plan, bound, norm, top), "recertified_from": source}
    return records, {**results.about, **about}, looks if "stop" in settings else {}


def _number_of(option: str, wanted: int | None, recorded: int | None, usual: int | None) -> int | None:
    """Return a number from the user, the sidecar, or the dataset's name, in this order.

    Raise if the user contradicts the sidecar or gives less than usual: certificates would not hold.
    """
    if wanted is None:
        return recorded or usual
    check_count(f"--{option}", wanted)
    if recorded not in (None, wanted) or wanted < (usual or 0):
        raise UsageError(f"`--{option}` is {recorded or usual} for these results, not {wanted}; omit it.")
    return wanted


def _settings(settings: Mapping[str, Any], plan: Plan, bound: str, norm: str, top: int) -> dict[str, Any]:
    """Return the settings of the recomputed results, without those of the published protocol, as `certify` does."""
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
    check_new(out)
    if looks:
        write_text(looks_path(out), looks_text(looks))
    write_sidecar(out, about)
    write_rows(out, records)


def _stored(
    path: Path, results: Results, settings: Mapping[str, Any], classes: int
) -> tuple[Plan, dict[int, list[Look]]]:
    """Return a results file's plan and looks; with a fixed n, the looks come from the file of counts."""
    alpha, stop = float(settings["alpha"]), settings.get("stop")
    if stop:
        return plan_of(stop, alpha), read_looks(path, classes)
    looks, votes = {}, dict(read_votes(path, classes))
    for idx, seconds in zip(results.idx.tolist(), results.seconds.tolist(), strict=True):
        if idx not in votes:
            raise SmoothcertError(
                f"{counts_path(path)} has no votes of image {idx}; resume with the same `certify` command."
            )
        looks[idx] = [Look(idx, look, seen, look * seconds) for look, seen in enumerate(votes[idx])]
    return fixed_plan(int(settings["n"]), alpha), looks
