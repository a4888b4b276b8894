"""Per-image results on disk: the field's TSV, the class counts behind it, and a JSON sidecar.

`name.tsv` has the columns idx, label, predict, radius, correct, time; `name.counts.tsv` has one row of class counts
for each of its rows; `name.json` says how they were made.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import SmoothcertError
from smoothcert.runtime.atomic_files import write_text

COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")
BESIDE = (".counts.tsv", ".looks.tsv")
"""How the names of the tables beside a results file end."""


@dataclass(frozen=True)
class Prediction:
    """The smoothed prediction of one image: -1 where the classifier abstained."""

    columns: ClassVar[tuple[str, ...]] = ("idx", "label", "predict", "correct", "time")
    count_columns: ClassVar[tuple[str, ...]] = ("idx", "votes")

    idx: int
    label: int
    predict: int
    seconds: float
    votes: Sequence[int]

    @property
    def correct(self) -> int:
        """1 where the predicted class is the label."""
        return int(self.predict == self.label)

    def row(self) -> str:
        """The TSV line."""
        return _line(self.idx, self.label, self.predict, self.correct, timedelta(seconds=self.seconds))

    def count_row(self) -> str:
        """The line of class counts: `class:count` for every class that got a vote, most votes first."""
        return _line(self.idx, pack_votes(self.votes))


@dataclass(frozen=True)
class Record:
    """The certificate of one image: prediction -1 and radius 0 where the classifier abstained."""

    columns: ClassVar[tuple[str, ...]] = COLUMNS
    count_columns: ClassVar[tuple[str, ...]] = ("idx", "selection", "estimation")

    idx: int
    label: int
    predict: int
    radius: float
    seconds: float
    selection: Sequence[int]
    estimation: Sequence[int]

    @property
    def correct(self) -> int:
        """1 where the certified class is the label."""
        return int(self.predict == self.label)

    def row(self) -> str:
        """The TSV line; the radius in full, as the shortest text that reads back to the same number."""
        elapsed = timedelta(seconds=self.seconds)
        return _line(self.idx, self.label, self.predict, repr(self.radius), self.correct, elapsed)

    def count_row(self) -> str:
        """The line of class counts of both stages."""
        return _line(self.idx, pack_votes(self.selection), pack_votes(self.estimation))


@dataclass(frozen=True)
class Results:
    """Certified images as columns, with the sidecar's content where there is one."""

    name: str
    idx: NDArray[np.int64]
    label: NDArray[np.int64]
    predict: NDArray[np.int64]
    radius: NDArray[np.float64]
    correct: NDArray[np.bool_]
    seconds: NDArray[np.float64]
    about: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.idx)


def sidecar_path(path: Path) -> Path:
    """Return where the JSON beside a results file lies."""
    stem, _ = _split(path)
    return path.with_name(stem + ".json")


def counts_path(path: Path) -> Path:
    """Return where the class counts beside a results file lie."""
    stem, packed = _split(path)
    return path.with_name(stem + ".counts.tsv" + packed)


def certificates_in(folder: Path, *, below: bool = False) -> list[Path]:
    """Return the results files of `certify` in a folder, or anywhere below it, packed ones too."""
    files = [path for end in (".tsv", ".tsv.gz") for path in folder.glob(("**/" if below else "") + f"certify-*{end}")]
    return sorted(path for path in files if not path.name.removesuffix(".gz").endswith(BESIDE))


def _split(path: Path) -> tuple[str, str]:
    """Return a results file's name without its extension, and .gz where it is packed."""
    packed = ".gz" if path.suffix == ".gz" else ""
    return path.name.removesuffix(packed).removesuffix(".tsv"), packed


def read_text(path: Path) -> str:
    """Return the text of a file, unpacked where it ends in .gz."""
    return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text(encoding="utf-8")


def try_reading(path: Path) -> str:
    """Return the text of a file, or say why it cannot be read."""
    try:
        return read_text(path)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise SmoothcertError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}).") from error


def read_results(path: str | Path) -> Results:
    """Read a results file: ours, or any of the published ones (any extension, more columns, time in any form).

    A file ending in .gz is unpacked.
    """
    path = Path(path)
    lines = try_reading(path).splitlines()
    header = lines[0].split("\t") if lines else []
    absent = [column for column in COLUMNS[:5] if column not in header]
    if absent:
        raise SmoothcertError(f"{path} is no certification result: it has no column {', '.join(absent)}.")
    rows = [line.split("\t") for line in lines[1:] if line.strip()]
    for number, row in enumerate(rows, 2):
        if len(row) < len(header):
            raise SmoothcertError(f"{path}, line {number}: {len(row)} fields where the header has {len(header)}.")
    if not rows:
        raise SmoothcertError(f"{path} holds no image yet.")
    try:
        columns = {name: [row[i] for row in rows] for i, name in enumerate(header)}
        numbers = {name: np.array(columns[name], dtype=np.float64) for name in COLUMNS[:5]}
        seconds = np.array([parse_seconds(text) for text in columns.get("time", ["0"] * len(rows))])
    except ValueError as error:
        raise SmoothcertError(f"{path} has a field that is no number ({error}).") from error
    wrong = ~((numbers["radius"] >= 0) & np.isfinite(numbers["radius"]))
    if wrong.any():  # NaN would sort above every radius and count as certified
        image = int(numbers["idx"][np.argmax(wrong)])
        raise SmoothcertError(f"{path} has a radius that is no number from 0 up, at image {image}.")
    whole = {name: numbers[name].astype(np.int64) for name in ("idx", "label", "predict")}
    _check_rows(path, whole["idx"], whole["predict"], numbers["radius"])
    sidecar = sidecar_path(path)
    return Results(
        name=_split(path)[0],
        **whole,
        radius=numbers["radius"],
        correct=numbers["correct"] == 1,
        seconds=seconds,
        about=read_sidecar(sidecar) if sidecar.exists() else {},
    )


def _check_rows(path: Path, idx: Any, predict: Any, radius: Any) -> None:
    """Refuse rows that no certification writes: an image twice, as of two files in one, or an abstention's radius."""
    values, times = np.unique(idx, return_counts=True)
    for wrong, text in (
        (values[times > 1], "stands in it twice"),
        (idx[(predict < 0) & (radius > 0)], "has a radius without an answer"),
    ):
        if len(wrong):
            raise SmoothcertError(f"{path} was not written like this: image {wrong[0]} {text}.")


def read_counts(path: str | Path, num_classes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the class counts [images, classes] of selection and estimation that lie beside a results file."""
    votes = [stages for _, stages in read_votes(path, num_classes)]
    selection, estimation = np.array(votes, dtype=np.int64).reshape(len(votes), 2, num_classes).swapaxes(0, 1)
    return selection, estimation


def read_votes(path: str | Path, num_classes: int) -> list[tuple[int, list[NDArray[np.int64]]]]:
    """Return each image that has class counts beside a results file, with those of selection and estimation.

    A last row that was not written in full is left out.
    """
    source, found = counts_path(Path(path)), list[tuple[int, list[NDArray[np.int64]]]]()
    lines = try_reading(source).splitlines(keepends=True)
    for number, line in enumerate((line for line in lines if line.endswith("\n")), 1):
        if number == 1:
            continue
        try:
            idx, selection, estimation = line.rstrip("\n").split("\t")
            found.append((int(idx), [unpack_votes(text, num_classes) for text in (selection, estimation)]))
        except (ValueError, IndexError) as error:
            wanted = f"an image's votes for {num_classes} classes in both stages"
            raise SmoothcertError(f"{source}, line {number}: expected {wanted}, but got {line.strip()!r}.") from error
    return found


def write_rows(path: Path, records: Sequence[Record]) -> None:
    """Write a whole results file and its counts, each in one step."""
    headers = ["\t".join(columns) + "\n" for columns in (Record.columns, Record.count_columns)]
    write_text(counts_path(path), headers[1] + "".join(record.count_row() for record in records))
    write_text(path, headers[0] + "".join(record.row() for record in records))


def read_sidecar(path: Path) -> dict[str, Any]:
    """Return the content of a sidecar."""
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise SmoothcertError(f"{path} cannot be read ({error.strerror}).") from error
    except ValueError as error:
        raise SmoothcertError(f"{path} cannot be read as JSON ({error}).") from error
    if not isinstance(content, dict):
        raise SmoothcertError(f"{path} does not hold a JSON object.")
    _check_settings(path, content.get("settings", {}))
    return content


def _check_settings(path: Path, settings: Any) -> None:
    """Refuse a file of that name which another program wrote, where what is read of it is of other kinds."""
    kinds = {"data": dict, "model": dict, "stop": dict, **dict.fromkeys(("sigma", "n0", "n", "alpha"), int | float)}
    if not isinstance(settings, dict):
        raise SmoothcertError(f"{path} is no sidecar of results: its `settings` are {settings!r}.")
    for name, kind in kinds.items():
        if name in settings and not isinstance(settings[name], kind):
            raise SmoothcertError(f"{path} is no sidecar of results: its `{name}` is {settings[name]!r}.")


def write_sidecar(results: Path, content: Mapping[str, Any]) -> None:
    """Write the sidecar of a results file in one step."""
    write_text(sidecar_path(results), json.dumps(content, indent=2) + "\n")


def parse_seconds(text: str) -> float:
    """Read a time as published: seconds, or h:mm:ss with or without days.

    >>> parse_seconds("0:00:14.2"), parse_seconds("8.5"), parse_seconds("1 day, 0:00:01")
    (14.2, 8.5, 86401.0)
    """
    match = re.fullmatch(r"(?:(\d+) days?, )?(\d+):(\d+):(\d+(?:\.\d*)?)", text.strip())
    if not match:
        return float(text)
    days, hours, minutes, seconds = match.groups(default="0")
    return 86400.0 * int(days) + 3600 * int(hours) + 60 * int(minutes) + float(seconds)


def _line(*fields: object) -> str:
    return "\t".join(str(field) for field in fields) + "\n"


def pack_votes(counts: Sequence[int]) -> str:
    """Write class counts as `class:count`, most votes first, classes without a vote left out.

    >>> pack_votes([1, 0, 5]), unpack_votes("2:5 0:1", 3).tolist()
    ('2:5 0:1', [1, 0, 5])
    """
    present = sorted(((count, -label) for label, count in enumerate(counts) if count), reverse=True)
    return " ".join(f"{-label}:{count}" for count, label in present)


def unpack_votes(text: str, num_classes: int) -> NDArray[np.int64]:
    """Read class counts as `pack_votes` writes them."""
    votes = np.zeros(num_classes, dtype=np.int64)
    for pair in text.split():
        label, count = map(int, pair.split(":"))
        if min(label, count) < 0:
            raise ValueError(f"expected a class and its votes, but got {pair!r}")
        votes[label] = count
    return votes
