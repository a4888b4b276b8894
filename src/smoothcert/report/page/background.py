"""What a run's folder says beside its certificates: how training went, what it cost, and where it was made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from smoothcert.report.sources import Run
from smoothcert.results.naming import counts_path, sidecar_path
from smoothcert.runtime.atomic_files import file_hash

Json = dict[str, Any]
_NO_CURVES = ("epoch", "seconds")


def training(run: Run, points: int = 100) -> Json | None:
    """Return the training's curves by name, thinned to at most `points` epochs, the last one always among them."""
    epochs = list(run.epochs)
    if not epochs:
        return None
    stride = -(-len(epochs) // points)
    thin = epochs[::-1][::stride][::-1]
    names = [key for key, value in epochs[-1].items() if key not in _NO_CURVES and isinstance(value, int | float)]
    curves = {name: [_short(row.get(name)) for row in thin] for name in names}
    return {"epochs": [row.get("epoch") for row in thin], "curves": curves}


def cost(run: Run, paper_hours: float | None) -> Json:
    """Return the seconds of training and certification as far as they are known, the devices, and the paper's hours."""
    results = run.entry.results
    segments = results.about.get("segments", [])
    spent = sum(float(segment.get("seconds", 0.0)) for segment in segments)
    trained = sum(float(epoch.get("seconds", 0.0)) for epoch in run.epochs)
    return {
        "training": trained or None,
        "trainedOn": _device(run.segments),
        "certification": spent or float(results.seconds.sum()) or None,
        "certifiedOn": _device(segments),
        "paperHours": paper_hours,
    }


def provenance(run: Run, about: str) -> Json:
    """Return everything that says how a run's numbers came about, in words for the foot of the page."""
    results = run.entry.results
    settings: Mapping[str, Any] = results.about.get("settings", {})
    last: Mapping[str, Any] = (results.about.get("segments") or [{}])[-1]
    files = [path for path in (run.path, counts_path(run.path), sidecar_path(run.path)) if path.is_file()]
    facts = {
        "data": " ".join(str(settings.get("data", {}).get(key, "")) for key in ("name", "split")).strip(),
        "images": f"{len(results):,}" + (f" ({settings['images']})" if "images" in settings else ""),
        "sigma": run.entry.sigma,
        "n0": settings.get("n0"),
        "n": settings.get("n"),
        "alpha": settings.get("alpha"),
        "seed": settings.get("seed"),
        "precision": settings.get("precision"),
        "network": settings.get("model", {}).get("architecture"),
        "network's SHA-256": settings.get("model", {}).get("sha256"),
        "certified on": _device(results.about.get("segments", [])),
        "trained on": _device(run.segments),
        "made": last.get("started"),
        "versions": ", ".join(f"{name} {version}" for name, version in last.get("versions", {}).items()),
    }
    return {
        "label": run.entry.title,
        "about": about,
        "facts": {key: str(value) for key, value in facts.items() if value not in (None, "")},
        "config": configuration(run),
        "files": [{"name": path.name, "sha256": file_hash(path)} for path in files],
    }


def configuration(run: Run) -> dict[str, str]:
    """Return a run's training configuration as texts, empty where it is not known."""
    if run.config is None:
        return {}
    values = {field.name: getattr(run.config, field.name) for field in dataclasses.fields(run.config)}
    options = values.pop("options")
    return {key: str(value) for key, value in {**values, **options}.items() if value != ""}


def _device(segments: Any) -> str | None:
    names = dict.fromkeys(str(segment["device"]) for segment in segments if segment.get("device"))
    return ", ".join(names) or None


def _short(value: Any) -> float | None:
    """Keep four digits; a loss that was no number any more has no place on a curve."""
    return float(f"{value:.4g}") if isinstance(value, int | float) and math.isfinite(value) else None
