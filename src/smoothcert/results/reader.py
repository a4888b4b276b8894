"""Read results files and the class counts beside them."""

from __future__ import annotations

import io
import reprlib
from array import array
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import SmoothcertError, takes
from smoothcert.results.naming import counts_path, results_stem, sidecar_path
from smoothcert.results.records import COLUMNS, Results, parse_seconds
from smoothcert.results.sidecar import known_classes, read_sidecar
from smoothcert.results.vote_table import VoteTable, read_votes
from smoothcert.runtime.bounded_files import read_bytes
from smoothcert.statistics.bounds import Floats, check_count

_REQUIRED = COLUMNS[:5]  # some published files have no column `time`
_WHOLE = ("idx", "label", "predict", "correct")


@takes(path=(str, Path))
def read_results(path: str | Path) -> Results:
    r"""Read a certification results file, written by smoothcert or published by others.

    Published files may have any extension, additional columns, and times as seconds or as h:mm:ss. A file ending in .gz
    is decompressed.

    Args:
        path: Path of the results file.

    Returns:
        The columns of the file, and the content of its sidecar if there is one.

    Raises:
        SmoothcertError: If the file cannot be read or is not a certification results file.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "a.tsv"
        >>> _ = path.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n7\t3\t3\t0.5\t1\t0:00:01\n")
        >>> results = read_results(path)
        >>> results.name, results.idx.tolist(), results.radius.tolist()
        ('a', [7], [0.5])
    """
    path = Path(path)
    numbers, sidecar = _parse_columns(read_bytes(path), path), sidecar_path(path)
    results = Results(
        name=results_stem(path),
        idx=numbers["idx"].astype(np.int64),
        label=numbers["label"].astype(np.int64),
        predict=numbers["predict"].astype(np.int64),
        radius=numbers["radius"],
        correct=numbers["correct"] == 1,
        seconds=numbers["time"],
        about=read_sidecar(sidecar) if sidecar.exists() else {},
    )
    _check_rows(path, results)
    return results


def _parse_columns(content: bytes, path: Path) -> dict[str, Floats]:
    """Parse the rows one by one into arrays, which take less memory than the rows as text."""
    lines = io.BytesIO(content)
    header = next(lines, b"").decode(errors="replace").rstrip("\r\n").split("\t")
    if missing := [column for column in _REQUIRED if column not in header]:
        raise SmoothcertError(f"{path} is not a certification results file; missing columns: {', '.join(missing)}.")
    places = {name: header.index(name) for name in COLUMNS if name in header}
    columns = {name: array("d") for name in places}
    parsers: dict[str, Callable[[bytes], float]] = dict.fromkeys(COLUMNS, float)
    parsers["time"] = lru_cache(1 << 16)(lambda text: parse_seconds(text.decode(errors="replace")))  # times repeat
    for number, line in enumerate(lines, 2):
        row = line.rstrip(b"\r\n").split(b"\t")
        if row == [b""]:
            continue
        if len(row) < len(header):
            raise SmoothcertError(f"{path}, line {number}: expected {len(header)} fields, but got {len(row)}.")
        try:
            for name, place in places.items():
                columns[name].append(parsers[name](row[place]))
        except (ValueError, OverflowError):
            text = row[place].decode(errors="replace")
            raise SmoothcertError(
                f"{path}, line {number}: expected `{name}` to be a number, but got {reprlib.repr(text)}."
            ) from None
    numbers = {name: np.frombuffer(column) for name, column in columns.items()}
    if not len(numbers["idx"]):
        raise SmoothcertError(f"{path} has no rows yet.")
    for name in _WHOLE:
        if not (np.abs(numbers[name]) < 2**53).all() or (numbers[name] != np.floor(numbers[name])).any():
            raise SmoothcertError(f"{path}: expected `{name}` to be a whole number in every row.")
    return {"time": np.zeros(len(numbers["idx"])), **numbers}


def _check_rows(path: Path, results: Results) -> None:
    """Raise if rows are impossible, for example because the file was edited or concatenated from two files."""
    idx, radius = results.idx, results.radius
    values, repeats = np.unique(idx, return_counts=True)
    for images, problem in (
        (idx[~((radius >= 0) & np.isfinite(radius))], "has a radius that is not a finite number >= 0"),
        (values[repeats > 1], "appears twice"),
        (idx[(results.predict < 0) & (radius > 0)], "has a positive radius although the classifier abstained"),
    ):
        if len(images):
            raise SmoothcertError(f"{path} is damaged: image {images[0]} {problem}.")


@takes(path=(str, Path))
def read_counts(path: str | Path, num_classes: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    r"""Read the class counts beside a certification results file.

    Args:
        path: Path of the results file; its counts lie beside it in `name.counts.tsv`.
        num_classes: Number of classes of the base classifier. Default: the number recorded in the sidecar, else the
            number of the dataset's classes, else one more than the largest class with votes.

    Returns:
        The votes in the selection stage and in the estimation stage, each [images, classes].

    Raises:
        SmoothcertError: If the counts cannot be read, or contain votes for a class that is not below `num_classes`.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.counts.tsv").write_text("idx\tselection\testimation\n7\t1:10\t1:98 0:2\n")
        >>> selection, estimation = read_counts(folder / "a.tsv", num_classes=2)
        >>> selection.tolist(), estimation.tolist()
        ([[0, 10]], [[2, 98]])
    """
    table, sidecar = read_vote_table(Path(path)), sidecar_path(Path(path))
    if num_classes is None:
        recorded = known_classes(read_sidecar(sidecar).get("settings", {})) if sidecar.exists() else None
        num_classes = recorded or table.classes
    check_count("num_classes", num_classes)
    table.require_classes(num_classes)
    return table.dense(0, len(table), num_classes)


def read_vote_table(path: Path) -> VoteTable:
    """Read all class counts beside a results file, except an incomplete last line."""
    return read_votes(counts_path(path))
