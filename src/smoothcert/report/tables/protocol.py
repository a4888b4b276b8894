"""How results were certified, where not in the published way: so that nothing is compared silently that differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from smoothcert.errors import UsageError
from smoothcert.statistics.metrics import radius_grid

if TYPE_CHECKING:
    from smoothcert.report.tables.table import Entry

_ALPHA = 0.001  # of every published table


def protocol_of(settings: Mapping[str, Any]) -> str:
    """Return what sets results apart from CERTIFY as published, or nothing.

    >>> protocol_of({"bound": "two-sided", "stop": {"rule": "radius", "radius": 0.5, "skip_wrong": True}})
    'stop radius 0.5, wrong skipped, two-sided'
    """
    stop = settings.get("stop", {})
    noise = settings.get("noise", "gaussian")
    parts = [
        _stopping(stop, settings.get("data", {}).get("name")) if stop else "",
        "wrong skipped" if stop.get("skip_wrong") else "",
        {"gaussian": "", "grid": "sound"}.get(noise, f"{noise} noise"),
        norm_of(settings) if norm_of(settings) != "l2" else "",
        settings.get("bound", ""),
        f"top {settings['top_k']}" if "top_k" in settings else "",
        f"alpha {settings['alpha']:g}" if settings.get("alpha", _ALPHA) != _ALPHA else "",
    ]
    return ", ".join(part for part in parts if part)


def _stopping(stop: Mapping[str, Any], dataset: str | None) -> str:
    """Return the rule and what it was asked for: a radius is only as large as that made it."""
    radii = stop.get("radii", [])
    parts = [
        f"stop {stop['rule']}",
        f"{stop['radius']:g}" if "radius" in stop else "",
        f"{stop['samples']:,} samples" if "samples" in stop else "",
        f"{stop['seconds']:g} s" if "seconds" in stop else "",
        "betting" if stop.get("confidence") == "betting" else "",
        "at " + " ".join(f"{radius:g}" for radius in radii) if radii and radii != list(radius_grid(dataset)) else "",
    ]
    return " ".join(part for part in parts if part)


def norm_of(settings: Mapping[str, Any]) -> str:
    """Return the norm of the radii."""
    return str(settings.get("norm", "l2"))


def check_comparable(entries: Sequence[Entry], *, linf: bool, paper: bool) -> None:
    """Refuse to set side by side what cannot be; rows of another protocol are otherwise named after it."""
    norms = {norm_of(entry.results.about.get("settings", {})) for entry in entries}
    if len(norms) > 1:
        raise UsageError(f"Radii in {' and '.join(sorted(norms))} cannot stand in one table; report them one by one.")
    if linf and norms != {"l2"}:
        raise UsageError(f"`--linf` converts l2 radii, and these are in {norms.pop()}.")
    for entry in entries:
        if paper and entry.protocol:
            raise UsageError(f"{entry.name} cannot be set beside the paper's numbers, which have another protocol.")


def check_same_protocol(entry: Entry, other: Entry) -> None:
    """Refuse the difference of two results that were certified in different ways, or on different images."""
    both = f"{entry.name} and {other.name}"
    if entry.protocol != other.protocol:
        raise UsageError(f"{both} were certified in different ways: no fair difference.")
    if None not in (entry.n, other.n) and entry.n != other.n:  # more votes prove larger radii
        raise UsageError(f"{both} were certified with n = {entry.n:,} and {other.n:,}: no fair difference.")
    _, here, there = np.intersect1d(entry.results.idx, other.results.idx, return_indices=True)
    if not np.array_equal(entry.results.label[here], other.results.label[there]):
        raise UsageError(f"{both} have different labels: they are about different images.")
