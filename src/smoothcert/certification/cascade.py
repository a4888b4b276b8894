"""Certify a cascade of smoothed classifiers (its levels) from the stored votes of each level.

Needs neither the networks nor torch. `smoothcert.statistics.cascade` defines cascades.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from smoothcert.errors import UsageError
from smoothcert.results.lock import ResultsLock
from smoothcert.results.naming import check_name, check_new, counts_path, level_paths
from smoothcert.results.reader import read_results, read_vote_table
from smoothcert.results.records import Record, Results
from smoothcert.results.sidecar import changed_settings, check_from_certify, write_sidecar
from smoothcert.results.verify import read_verified
from smoothcert.results.writer import counts_text, rows_text
from smoothcert.runtime.atomic_files import file_hash, write_text
from smoothcert.statistics.bounds import Ints
from smoothcert.statistics.cascade import CascadeRule
from smoothcert.statistics.noise import GaussianNoise

_SHARED = ("data", "n0", "n", "alpha", "classes")  # settings that all levels must have in common
_LEVEL = ("sigma", "seed", "precision", "form", "micro_batch", "device", "model")  # settings of one level


class CascadeResults(NamedTuple):
    """Certificates of a cascade, the sidecar content, and each level's votes in the selection and the estimation."""

    records: list[Record]
    about: dict[str, Any]
    votes: list[tuple[Ints, Ints]]


def certify_cascade(
    paths: Sequence[Path],
    *,
    p0: float = 0.5,
    alpha: float | None = None,
    first_share: float = 0.8,
    unverified: bool = False,
) -> CascadeResults:
    """Certify a cascade from the results files of its levels, in order of decreasing sigma.

    The certificates have the images in the order of the first file. By default, alpha is as in the files.
    """
    files = [_read(path, unverified=unverified) for path in paths]
    _check_protocols(paths, files, alpha_given=alpha is not None)
    first = _settings(files[0])
    sigmas = tuple(float(_settings(file)["sigma"]) for file in files)
    rule = CascadeRule(sigmas, p0, float(first["alpha"]) if alpha is None else alpha, first_share)
    rule.check_reach(int(first["n"]))
    votes = [_votes(path, files[0].idx) for path in paths]
    found = rule.certify(votes)
    spent = [dict(zip(file.idx.tolist(), file.seconds.tolist(), strict=True)) for file in files]
    columns = (files[0].idx, files[0].label, found.prediction, found.radius)
    records = [
        Record(idx, label, predict, radius, sum(seconds[idx] for seconds in spent), (), ())
        for idx, label, predict, radius in zip(*(column.tolist() for column in columns), strict=True)
    ]
    return CascadeResults(records, _about(paths, files, rule), votes)


def write_cascade(out: Path, made: CascadeResults) -> None:
    """Write the certificates of a cascade as a new results file, with the votes of every level beside it."""
    check_name(out)
    files = level_paths(out, len(made.votes))
    with ResultsLock(out, files):
        check_new(out)
        write_sidecar(out, made.about)
        for file, votes in zip(files, made.votes, strict=True):
            rows = zip(made.records, *(stage.tolist() for stage in votes), strict=True)
            counts = [replace(record, selection=first, estimation=second) for record, first, second in rows]
            write_text(file, counts_text(counts))
        write_text(out, rows_text(made.records))


def _settings(results: Results) -> Mapping[str, Any]:
    settings: Mapping[str, Any] = results.about["settings"]
    return settings


def _read(path: Path, *, unverified: bool) -> Results:
    """Return the results of one level; raise if a cascade cannot be computed from them."""
    results = read_results(path)
    settings = results.about.get("settings", {})
    for wrong, problem in (
        ("cascade" in settings, "is itself a cascade; pass the files of its levels instead"),
        (settings.get("task") != "certify", "has no sidecar from `certify` beside it"),
        ("stop" in settings, "was made with a stopping rule; a cascade needs a fixed n"),
        (settings.get("noise", GaussianNoise.name) != GaussianNoise.name, "was not made with Gaussian noise"),
        (not counts_path(path).exists(), "has no file of votes beside it"),
    ):
        if wrong:
            raise UsageError(f"{path} cannot be a level of a cascade: it {problem}.")
    check_from_certify(path, settings, ("data", "sigma", "n0", "n", "alpha"))
    return results if unverified else read_verified(path)


def _check_protocols(paths: Sequence[Path], files: Sequence[Results], *, alpha_given: bool) -> None:
    """Raise unless all levels have the same images, labels and protocol."""
    keys = [key for key in _SHARED if key != "alpha" or not alpha_given]
    first, *others = ({key: _settings(file).get(key) for key in keys} for file in files)
    for path, file, other in zip(paths[1:], files[1:], others, strict=True):
        if changed := changed_settings(first, other):
            raise UsageError(f"{path} was made with different settings than {paths[0]}: {', '.join(changed)}.")
        order, other_order = np.argsort(files[0].idx), np.argsort(file.idx)
        for column, what in (("idx", "images"), ("label", "labels")):
            if not np.array_equal(getattr(files[0], column)[order], getattr(file, column)[other_order]):
                raise UsageError(f"{path} does not have the same {what} as {paths[0]}; the levels of a cascade must.")


def _votes(path: Path, idx: Ints) -> tuple[Ints, Ints]:
    """Return the votes of selection and estimation for the images `idx`, each [images, classes]."""
    table = read_vote_table(path)
    rows = table.rows_of(idx)
    if len(missing := idx[rows < 0]):
        raise UsageError(f"{table.source} has no votes for image {missing[0]}; resume its `certify` command.")
    selection, estimation = table.dense(0, len(table), table.classes)
    return selection[rows], estimation[rows]


def _about(paths: Sequence[Path], files: Sequence[Results], rule: CascadeRule) -> dict[str, Any]:
    """Return the sidecar content: shared settings and, for every level, its own settings and its results file."""
    settings = [_settings(file) for file in files]
    levels = [
        {
            **{key: own[key] for key in _LEVEL if key in own},
            "file": path.name,
            "sha256": file_hash(path),
            "counts_sha256": file_hash(counts_path(path)),
        }
        for path, own in zip(paths, settings, strict=True)
    ]
    models = [own.get("model", {}) for own in settings]
    common = ((key, {model.get(key) for model in models}) for key in ("architecture", "method"))
    model = {key: value for key, (value, *others) in common if value and not others}
    model["name"] = "cascade of " + ", ".join(str(one.get("name", "?")) for one in models)
    kept = ("task", "sigma", "n0", "n", "images", "data", "classes")
    made = {
        **{key: settings[0][key] for key in kept if key in settings[0]},
        "alpha": rule.alpha,
        "model": model,
        "cascade": {"p0": rule.p0, "first_share": rule.first_share, "levels": levels},
    }
    segments = [
        {"level": level, **segment} for level, file in enumerate(files, 1) for segment in file.about.get("segments", [])
    ]
    return {"settings": made, "segments": segments}
