"""Training curves, cost and provenance of a run, from the files in its folder."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from smoothcert.report.sources import Run
from smoothcert.report.symbols import with_symbols
from smoothcert.results.naming import counts_path, sidecar_path
from smoothcert.runtime.atomic_files import file_hash
from smoothcert.runtime.typed_files import Json

_NOT_CURVES = ("epoch", "seconds")


def training_curves(run: Run, points: int = 100) -> Json | None:
    """Return training curves by name at up to `points` epochs (including the last); None if no epoch is recorded."""
    if not run.epochs:
        return None
    stride = -(-len(run.epochs) // points)
    kept = run.epochs[::-1][::stride][::-1]
    names = [key for key, value in kept[-1].items() if key not in _NOT_CURVES and isinstance(value, int | float)]
    curves = {name: [_round(row.get(name)) for row in kept] for name in names}
    return {"epochs": [row.get("epoch") for row in kept], "curves": curves}


def cost(run: Run, paper_hours: float | None) -> Json:
    """Return seconds and devices of training and certification (None if unknown), and the paper's training hours."""
    results = run.entry.results
    segments = results.about.get("segments", [])
    certification = sum(float(segment.get("seconds", 0.0)) for segment in segments)
    training = sum(float(epoch.get("seconds", 0.0)) for epoch in run.epochs)
    return {
        "training": training or None,
        "trainedOn": _devices(run.segments),
        "certification": certification or float(results.seconds.sum()) or None,
        "certifiedOn": _devices(segments),
        "paperHours": paper_hours,
    }


def provenance(run: Run, about: str) -> Json:
    """Return settings, configuration, devices, versions and file hashes of a run."""
    results, settings = run.entry.results, run.entry.settings
    segments = results.about.get("segments") or [{}]
    last: Mapping[str, Any] = segments[-1]
    options = dataclasses.asdict(run.config) if run.config else {}
    options |= options.pop("options", {})
    files = [path for path in (run.path, counts_path(run.path), sidecar_path(run.path)) if path.is_file()]
    facts = {
        "dataset": " ".join(str(settings.get("data", {}).get(key, "")) for key in ("name", "split")).strip(),
        "images": f"{len(results):,}" + (f" ({settings['images']})" if "images" in settings else ""),
        "sigma": run.entry.sigma,
        **{key: settings.get(key) for key in ("n0", "n", "alpha", "seed", "precision")},
        "architecture": settings.get("model", {}).get("architecture"),
        "model SHA-256": settings.get("model", {}).get("sha256"),
        "certified on": _devices(segments),
        "trained on": _devices(run.segments),
        "certified at": last.get("started"),
        "versions": ", ".join(f"{name} {version}" for name, version in last.get("versions", {}).items()),
    }
    return {
        "label": with_symbols(run.entry.title),
        "about": about,
        "facts": {key: str(value) for key, value in facts.items() if value not in (None, "")},
        "config": {key: str(value) for key, value in options.items() if value != ""},
        "files": [{"name": path.name, "sha256": file_hash(path)} for path in files],
    }


def _devices(segments: Any) -> str | None:
    names = dict.fromkeys(str(segment["device"]) for segment in segments if segment.get("device"))
    return ", ".join(names) or None


def _round(value: Any) -> float | None:
    """Round to four significant digits; return None for NaN and infinity, which JSON does not have."""
    return float(f"{value:.4g}") if isinstance(value, int | float) and math.isfinite(value) else None
