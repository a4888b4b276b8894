"""Check results files against the votes and the settings beside them. Does not import torch.

If votes are stored, classes and radii are recomputed from them. Otherwise, radii are compared with the largest radius
that unanimous votes prove. Labels come from the dataset and cannot be recomputed; the only check is that the column
`correct` agrees with label and class.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.errors import SmoothcertError, first_line
from smoothcert.results.image_lists import images_of, is_joined
from smoothcert.results.naming import counts_path, level_paths, looks_path, sidecar_path
from smoothcert.results.proven import CHANGED, UnverifiedError, prove_by_counts, prove_by_levels, prove_by_looks
from smoothcert.results.reader import read_results, read_vote_table
from smoothcert.results.records import Results
from smoothcert.results.stored_protocol import StoredProtocol
from smoothcert.results.vote_table import VoteTable
from smoothcert.statistics.bounds import ABSTAIN, Ints, largest_radius

_NEEDED = ("sigma", "n0", "n", "alpha")
_PUBLISHED_N, _PUBLISHED_ALPHA = 10**7, 0.001  # far more noise samples than in any published file


def read_verified(path: Path) -> Results:
    """Read a results file; raise if its rows do not follow from the files beside it."""
    try:
        results = read_results(path)
        verify_results(path, results)
    except SmoothcertError:  # retry: a run in progress may replace files while they are read
        results = read_results(path)
        verify_results(path, results)
    return results


def verify_results(path: Path, results: Results) -> None:
    """Raise UnverifiedError if rows contradict the votes or the sidecar beside the file."""
    contradicting = results.idx[results.correct != (results.predict == results.label)]
    if len(contradicting):
        raise UnverifiedError(path, f"the column `correct` of image {contradicting[0]} contradicts its label and class")
    settings = results.about.get("settings", {})
    stop = settings.get("stop")
    supported = stop is None or stop.get("confidence") != "betting"
    try:
        files = _vote_files(path, settings)
        missing = [file for file in files if not file.exists()]
        if "images" in settings:
            _check_images(path, results.idx, settings["images"], sequential=stop is not None)
        lacking = [key for key in _NEEDED if key not in settings]
        if lacking and not missing:
            problem = f"it lacks {', '.join(lacking)}" if settings else "there are votes, but no settings"
            raise UnverifiedError(sidecar_path(path), problem)
        if "cascade" not in settings and level_paths(path, 1)[0].exists():
            raise UnverifiedError(sidecar_path(path), "it lacks `cascade`, although there are votes of cascade levels")
        if supported and 0 < len(missing) < len(files):
            raise UnverifiedError(path, f"its votes file {missing[0].name} is missing")
        if supported and not lacking:
            _check_rows(path, results, StoredProtocol.of(settings), settings.get("classes"), has_votes=not missing)
        elif "sigma" in settings:
            n, alpha = int(settings.get("n", _PUBLISHED_N)), float(settings.get("alpha", _PUBLISHED_ALPHA))
            verify_limit(path, results, float(settings["sigma"]), n, alpha)
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:  # includes UsageError
        raise UnverifiedError(
            path, f"its votes or the settings in {sidecar_path(path).name} are invalid ({first_line(error)})"
        ) from error


def _vote_files(path: Path, settings: Mapping[str, Any]) -> list[Path]:
    """Return the paths of the files that contain the votes for the rows."""
    if "cascade" in settings:
        return level_paths(path, len(settings["cascade"]["levels"]))
    return [counts_path(path), looks_path(path)] if "stop" in settings else [counts_path(path)]


def verify_limit(
    path: Path, results: Results, sigma: float, n: int = _PUBLISHED_N, alpha: float = _PUBLISHED_ALPHA
) -> None:
    """Raise UnverifiedError if a radius is larger than `n` unanimous votes could prove at `sigma`.

    The default is 10 million votes, more than published results used.
    """
    limit = 1.01 * largest_radius(sigma, n, alpha)  # published radii and noise levels are rounded
    advice = "set `sigma` to the noise level of the results" if not results.about else CHANGED
    _check_limit(path, results, limit, f"noise of sigma {sigma:g}", advice)


def _check_limit(path: Path, results: Results, limit: float, evidence: str, advice: str = CHANGED) -> None:
    row = int(results.radius.argmax())
    if results.radius[row] > limit:
        radius = f"the radius of image {results.idx[row]} is {results.radius[row]:g}"
        raise UnverifiedError(path, f"{radius}, but {evidence} proves {limit:.4g} at most", advice)


def _check_images(path: Path, idx: Ints, images: Any, *, sequential: bool) -> None:
    """Raise unless the rows are for a prefix of `images` or, if `sequential`, for a subset in the same order."""
    named = images_of(images)
    expected = sorted(named) if is_joined(images) else named
    if sequential:
        chosen = set(idx.tolist())
        if isinstance(expected, range):  # a range may be much longer than the results
            expected = sorted((image for image in chosen if image in expected), reverse=expected.step < 0)
        else:
            expected = [image for image in expected if image in chosen]
    wanted = np.array(expected[: len(idx)], dtype=np.int64)
    if np.array_equal(wanted, idx):
        return
    if len(wanted) < len(idx):
        problem = f"it has {len(idx):,} rows, but {sidecar_path(path).name} lists only {len(wanted):,} images"
    else:
        row = int((wanted != idx).argmax())
        problem = f"row {row + 1} is for image {idx[row]}, but should be for image {wanted[row]}"
    raise UnverifiedError(path, problem)


def _check_rows(
    path: Path, results: Results, protocol: StoredProtocol, recorded_classes: int | None, *, has_votes: bool
) -> None:
    """Raise unless classes and radii follow from the votes; if no votes are stored, check only the largest radius."""
    if not has_votes:
        classes = protocol.classes or 1 + int(max(results.label.max(), results.predict.max()))
        limit = protocol.largest(classes) + protocol.tolerance
        evidence = f"n = {protocol.plan.looks[-1]:,} at alpha = {protocol.plan.alpha:g}"
        _check_limit(path, results, limit, evidence + f" and sigma {protocol.noise.sigma:g}")
        return
    if protocol.cascade:
        predict, radius = prove_by_levels(path, results, protocol, protocol.cascade)
    else:
        table = read_vote_table(path)
        if recorded_classes:  # not those of the dataset, which may be fewer than the network has
            table.require_classes(recorded_classes)
        compute = prove_by_looks if protocol.sequential else prove_by_counts
        predict, radius = compute(path, results, protocol, table, _rows_of(results.idx, table))
    radius, exact = protocol.in_norm(radius), protocol.exact
    wrong = (results.predict != predict) & (exact | (results.predict != ABSTAIN))
    if wrong.any():
        row = int(wrong.argmax())
        votes = "prove no class" if predict[row] == ABSTAIN else f"are for class {predict[row]}"
        raise UnverifiedError(
            path, f"the class of image {results.idx[row]} is {results.predict[row]}, but its votes {votes}"
        )
    difference = results.radius - radius
    wrong = (np.abs(difference) if exact else difference) > protocol.tolerance
    if wrong.any():
        row = int(wrong.argmax())
        values = f"{results.radius[row]:.9g}, but its votes prove {radius[row]:.9g}"
        raise UnverifiedError(path, f"the radius of image {results.idx[row]} is {values}")


def _rows_of(idx: Ints, table: VoteTable) -> Ints:
    images, repeats = np.unique(table.idx, return_counts=True)
    if len(twice := images[repeats > 1]):
        raise UnverifiedError(table.source, f"image {twice[0]} appears twice")
    rows = table.rows_of(idx)
    if len(missing := idx[rows < 0]):
        raise UnverifiedError(table.source, f"there are no votes for image {missing[0]}")
    return rows
