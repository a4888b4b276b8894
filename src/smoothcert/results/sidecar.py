"""Sidecar of a results file: a JSON file that describes how the rows were computed.

`settings` cannot change once there are rows. `segments` has one entry for each time the run was started or resumed,
with the device, versions, time spent and, if known, the kernel and the Python function or module.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from smoothcert.dataset_names import classes_of, dimensions_of
from smoothcert.errors import Notice, SmoothcertError, UsageError
from smoothcert.results.image_lists import images_of
from smoothcert.results.naming import counts_path, looks_path, sidecar_path
from smoothcert.results.sidecar_types import Settings, Sidecar
from smoothcert.runtime.atomic_files import write_text
from smoothcert.runtime.typed_files import check_type, read_json


def read_sidecar(path: Path) -> dict[str, Any]:
    """Return the content of a sidecar; raise if a field has the wrong type or is out of range."""
    content: dict[str, Any] = read_json(path, Sidecar)
    if "images" in content.get("settings", {}):
        try:
            images_of(content["settings"]["images"])
        except ValueError as error:
            raise SmoothcertError(
                f"{path}: expected `settings.images` to list image indices, but got {error}."
            ) from None
    return content


def write_sidecar(results: Path, content: Mapping[str, Any]) -> None:
    """Write the sidecar of a results file atomically."""
    write_text(sidecar_path(results), json.dumps(content, indent=2) + "\n")


def open_sidecar(results: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of an existing or a new sidecar; raise if existing rows were made with different settings."""
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    check_type(plain, Settings, results)  # fail now instead of when the file is read
    path, new = sidecar_path(results), {"settings": plain, "segments": []}
    if not path.exists():
        return new
    content = read_sidecar(path)
    before = content.get("settings", {})
    changed = changed_settings(before, plain)
    if changed and not _has_rows(results):  # a run that wrote no row must not block the next one
        return new
    if changed:
        changes = "; ".join(_describe_change(key, before.get(key), plain.get(key)) for key in changed)
        raise UsageError(
            f"{results} was made with different settings ({changes}); move it elsewhere or choose another `out`."
        )
    return {"settings": before, "segments": list(content.get("segments", []))}


def require_beside(file: Path, companion: Path) -> None:
    """Raise if there are rows in `file`, but `companion` is missing."""
    if not companion.exists():
        raise UsageError(
            f"{file} exists without {companion.name} beside it; move it elsewhere or choose another `out`."
        )


def check_from_certify(results: Path, settings: Mapping[str, Any], needed: Sequence[str]) -> None:
    """Raise if the settings lack entries that `certify` writes."""
    if lacking := [key for key in needed if key not in settings]:
        raise UsageError(f"The sidecar of {results} lacks {', '.join(lacking)}; it was not written by `certify`.")


def known_classes(settings: Mapping[str, Any]) -> int | None:
    """Return the recorded number of classes, else the number of classes of a known dataset, or None."""
    return settings.get("classes") or classes_of(settings.get("data", {}).get("name"))


def known_dimensions(settings: Mapping[str, Any]) -> int | None:
    """Return the recorded number of values per image, else that of a known dataset, or None."""
    data = settings.get("data", {})
    return data.get("dimensions") or dimensions_of(data.get("name"))


def check_function(results: Path, before: Sequence[Mapping[str, Any]], segment: Mapping[str, Any]) -> None:
    """Raise if existing rows come from a different kernel; warn if they may come from a different Python function."""
    kernels = [one.get("kernel") or "none recorded" for one in (before[-1] if before else {}, segment)]
    if before and kernels[0] != kernels[1]:
        raise UsageError(
            f"{results} cannot be resumed: its votes come from another kernel ({kernels[0]}, now {kernels[1]}), which "
            "rounds differently; resume with the smoothcert version and device that started the run, or choose another "
            "`out`."
        )
    now = segment.get("function")
    if not now:
        return
    earlier = (before[-1].get("function") if before else None) or now
    names = [f"{function.get('module')}.{function.get('name')}" for function in (earlier, now)]
    doubt = f"may come from a function other than {names[1]}"
    if earlier != now:
        source = f"{names[0]}, not {names[1]}" if names[0] != names[1] else f"another version of {names[0]}"
        doubt = f"come from {source}"
    text = f"{results} is resumed, but its rows {doubt}; identify the base classifier with `model={{'sha256': ...}}`."
    warnings.warn(text, Notice, stacklevel=2)


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the keys whose values differ, sorted; a missing key counts as None.

    >>> changed_settings({"n": 100, "seed": 0}, {"n": 200, "seed": 0, "bound": None})
    ['n']
    """
    return sorted(key for key in {*before, *now} if before.get(key) != now.get(key))


def _describe_change(key: str, before: Any, now: Any) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        parts = changed_settings(before, now)
        return "; ".join(_describe_change(f"{key}.{part}", before.get(part), now.get(part)) for part in parts)
    old, new = ("not set" if value is None else value for value in (before, now))
    return f"{key} was {old}, now {new}"


def _has_rows(results: Path) -> bool:
    """Return True if a results file, or the counts or looks beside it, contains more than a header."""
    files = (results, counts_path(results), looks_path(results))
    return any(file.is_file() and file.read_bytes().count(b"\n") > 1 for file in files)
