"""Describe how a protocol differs from the published CERTIFY, and check that results can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from smoothcert.errors import UsageError
from smoothcert.statistics.metrics import radius_grid

if TYPE_CHECKING:
    from smoothcert.report.tables.entries import Entry

_PUBLISHED_ALPHA = 0.001
_HANDLED = {"rule", "radius", "samples", "seconds", "confidence", "radii", "skip_wrong", "images", "looks", "alphas"}


def protocol_of(settings: Mapping[str, Any]) -> str:
    """Describe the differences between these settings and the published CERTIFY; return "" if there are none.

    >>> protocol_of({"bound": "two-sided", "stop": {"rule": "radius", "radius": 0.5, "skip_wrong": True}})
    'stop radius 0.5, wrong skipped, two-sided'
    """
    stop = settings.get("stop", {})
    noise, norm = settings.get("noise", "gaussian"), settings.get("norm", "l2")
    parts = [
        _stopping_rule(stop, settings.get("data", {}).get("name")) if stop else "",
        "wrong skipped" if stop.get("skip_wrong") else "",
        _cascade(settings["cascade"]) if "cascade" in settings else "",
        {"gaussian": "", "grid": "sound"}.get(noise, f"{noise} noise"),
        norm if norm != "l2" else "",
        settings.get("bound", ""),
        f"top {settings['top_k']}" if "top_k" in settings else "",
        f"alpha {settings['alpha']:g}" if settings.get("alpha", _PUBLISHED_ALPHA) != _PUBLISHED_ALPHA else "",
    ]
    return ", ".join(part for part in parts if part)


def _stopping_rule(stop: Mapping[str, Any], dataset: str | None) -> str:
    """Describe a stopping rule with its parameters, which limit how large a radius can get."""
    radii = stop.get("radii", [])
    parts = [
        f"stop {stop['rule']}",
        f"{stop['radius']:g}" if "radius" in stop else "",
        f"{stop['samples']:,} samples" if "samples" in stop else "",
        f"{stop['seconds']:g} s" if "seconds" in stop else "",
        "betting" if stop.get("confidence") == "betting" else "",
        "at " + " ".join(f"{radius:g}" for radius in radii) if radii and radii != list(radius_grid(dataset)) else "",
        *(f"{key} {stop[key]}" for key in sorted(stop.keys() - _HANDLED)),  # options of newer versions
    ]
    return " ".join(part for part in parts if part)


def _cascade(cascade: Mapping[str, Any]) -> str:
    sigmas = " ".join(f"{level['sigma']:g}" for level in cascade["levels"])
    return f"cascade {sigmas}, p0 {cascade['p0']:g}"


def check_comparable(entries: Sequence[Entry], *, linf: bool, paper: bool) -> None:
    """Raise if norms differ, or if rows lack the l2 norm for `linf` or the published protocol for `paper`."""
    norms = {entry.settings.get("norm", "l2") for entry in entries}
    if len(norms) > 1:
        raise UsageError(f"Radii in {' and '.join(sorted(norms))} cannot be in one table; report each norm separately.")
    if linf and norms != {"l2"}:
        raise UsageError(f"`linf` converts l2 radii, but these radii are in the {norms.pop()} norm; omit `linf`.")
    for entry in entries:
        if paper and entry.protocol:
            raise UsageError(f"{entry.name} was not certified with the paper's protocol; omit `paper`.")


def check_same_protocol(entry: Entry, other: Entry) -> None:
    """Raise if two results have different protocols, different n, or different labels for the same image."""
    reason = ""
    if entry.protocol != other.protocol:
        reason = "they were certified with different protocols"
    elif None not in (entry.n, other.n) and entry.n != other.n:  # more noise samples prove larger radii
        reason = f"they were certified with n = {entry.n:,} and {other.n:,}"
    else:
        _, here, there = np.intersect1d(entry.results.idx, other.results.idx, return_indices=True)
        if not np.array_equal(entry.results.label[here], other.results.label[there]):
            reason = "their labels differ, so they are on different images"
    if reason:
        raise UsageError(f"{entry.name} and {other.name} cannot be compared: {reason}; choose another `baseline`.")
