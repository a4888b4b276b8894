"""Certify a cascade of smoothed classifiers (its levels) from the stored votes of each level.

Needs neither the networks nor torch. `smoothcert.statistics.cascade` defines cascades.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import UsageError
from smoothcert.results.lock import ResultsLock
from smoothcert.results.naming import check_name, check_new, counts_path, level_paths
from smoothcert.results.reader import read_results, read_vote_table
from smoothcert.results.records import Record, Results, format_row
from smoothcert.results.sidecar import changed_settings, check_from_certify, write_sidecar
from smoothcert.results.verify import read_verified
from smoothcert.runtime.atomic_files import file_hash, write_text
from smoothcert.statistics.cascade import CascadeRule
from smoothcert.statistics.noise import GaussianNoise

_SHARED = ("data", "n0", "n", "alpha", "classes")  # settings that all levels must have in common
_LEVEL = ("sigma", "seed", "precision", "form", "micro_batch", "device", "model")  # settings of one level


class CascadeResults(NamedTuple):
    """Certificates of a cascade: its records, the sidecar content, and, for each level, records with its votes."""

    records: list[Record]
    about: dict[str, Any]
    levels: list[list[Record]]


def certify_cascade(
    paths: Sequence[Path],
    *,
    p0: float = 0.5,
    alpha: float | None = None,
    first_share: float = 0.8,
    unverified: bool = False,
) -> CascadeResults:
    """Certify a cascade from results files of its levels, in order of decreasing sigma.

    Args:
        paths: Results files that `certify` wrote for the same images, with the files of votes beside them.
        p0: Class probability above which a level answers, in [0.5, 1).
        alpha: Maximum probability that a certificate is false (default: as in the files).
        first_share: Share of alpha for the first level's lower bound.
        unverified: Also read files whose rows do not follow from their votes.

    Returns:
        The certificates, with the images in the order of the first file.

    Raises:
        UsageError: If the files lack votes, differ in protocol or images, or an argument is invalid.
    """
    files = [_read(path, unverified=unverified) for path in paths]
    rule = CascadeRule(tuple(float(_settings(file)["sigma"]) for file in files), p0, first_share=first_share)
    _check_protocols(paths, files, alpha_given=alpha is not None)
    first = _settings(files[0])
    rule = CascadeRule(rule.sigmas, p0, float(first["alpha"]) if alpha is None else alpha, first_share)
    rule.check_reach(int(first["n"]))
    votes = [_votes(path, files[0].idx) for path in paths]
    found = rule.certify(votes)
    rows = [{int(idx): row for row, idx in enumerate(file.idx)} for file in files]
    records, levels = list[Record](), [list[Record]() for _ in files]
    answers = zip(files[0].idx.tolist(), files[0].label.tolist(), *(values.tolist() for values in found), strict=True)
    for place, (idx, label, predict, radius, _) in enumerate(answers):
        seconds = [float(file.seconds[row[idx]]) for file, row in zip(files, rows, strict=True)]
        records.append(Record(idx, label, predict, radius, sum(seconds), (), ()))
        for level, spent, (selection, estimation) in zip(levels, seconds, votes, strict=True):
            counts = selection[place].tolist(), estimation[place].tolist()
            level.append(Record(idx, label, predict, radius, spent, *counts))
    return CascadeResults(records, _about(paths, files, rule), levels)


def write_cascade(out: Path, made: CascadeResults) -> None:
    """Write the certificates of a cascade as a new results file, with the votes of every level beside it."""
    check_name(out)
    files = level_paths(out, len(made.levels))
    with ResultsLock(out, files):
        check_new(out)
        write_sidecar(out, made.about)
        for file, level in zip(files, made.levels, strict=True):
            write_text(file, format_row(*Record.count_columns) + "".join(record.count_row() for record in level))
        write_text(out, format_row(*Record.columns) + "".join(record.row() for record in made.records))


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


def _votes(path: Path, idx: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the votes of selection and estimation for the images `idx`, each [images, classes]."""
    table = read_vote_table(path)
    rows = {int(image): row for row, image in enumerate(table.idx)}
    if missing := [image for image in idx.tolist() if image not in rows]:
        raise UsageError(f"{counts_path(path)} has no votes for image {missing[0]}; resume its `certify` command.")
    selection, estimation = table.dense(0, len(table), table.classes)
    wanted = [rows[image] for image in idx.tolist()]
    return selection[wanted], estimation[wanted]


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
    model = {key: models[0].get(key) for key in ("architecture", "method") if len({m.get(key) for m in models}) == 1}
    model["name"] = "cascade of " + ", ".join(str(one.get("name", "?")) for one in models)
    kept = {
        key: settings[0][key] for key in ("task", "sigma", "n0", "n", "images", "data", "classes") if key in settings[0]
    }
    segments = [
        {"level": level, **segment} for level, file in enumerate(files, 1) for segment in file.about.get("segments", [])
    ]
    made = {
        **kept,
        "alpha": rule.alpha,
        "model": {key: value for key, value in model.items() if value},
        "cascade": {"p0": rule.p0, "first_share": rule.first_share, "levels": levels},
    }
    return {"settings": made, "segments": segments}
