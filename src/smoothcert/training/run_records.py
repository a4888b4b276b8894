"""Read the records of a run: metrics.jsonl and segments.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from smoothcert.errors import SmoothcertError, first_line
from smoothcert.runtime.typed_files import Index, Seconds, read_json, read_json_lines


class _FirstStep(TypedDict):
    first_step: Index


class _Segment(_FirstStep, total=False):
    """An entry in `segments.json`, which describes one process that trained the run."""

    seconds: Seconds
    device: str
    dataset: str
    versions: dict[str, str]


class _EpochNumber(TypedDict):
    epoch: Index


class _Epoch(_EpochNumber, total=False):
    """A line in `metrics.jsonl`, with the metrics of one epoch. Methods may add other values."""

    seconds: Seconds


def read_segments(path: Path) -> list[dict[str, Any]]:
    """Return the entries of the processes that trained a run; an empty list if there is no such file."""
    return _read(path, lambda: read_json(path, list[_Segment]))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the metrics of the epochs so far; an empty list if there is no such file."""
    return _read(path, lambda: read_json_lines(path, _Epoch))


def _read(path: Path, read: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    try:
        return read()
    except SmoothcertError as error:
        reason = first_line(error).removeprefix(str(path)).lstrip(":, ")
        raise SmoothcertError(f"{path} is damaged ({reason}); delete it to resume without it.") from error
