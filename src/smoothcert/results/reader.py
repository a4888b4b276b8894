"""Reading results files and the class counts beside them."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.dataset_names import classes_of
from smoothcert.errors import SmoothcertError
from smoothcert.results.naming import counts_path, results_stem, sidecar_path
from smoothcert.results.records import COLUMNS, Results, parse_seconds
from smoothcert.results.sidecar import read_sidecar
from smoothcert.results.vote_table import VoteTable, parse_votes

T = TypeVar("T")
_REQUIRED = COLUMNS[:5]  # some published files have no time


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
    lines = try_reading(path).splitlines()
    header = lines[0].split("\t") if lines else []
    if missing := [column for column in _REQUIRED if column not in header]:
        raise SmoothcertError(f"{path} is not a certification results file: it has no column {', '.join(missing)}.")
    rows = [line.split("\t") for line in lines[1:] if line.strip()]
    for number, row in enumerate(rows, 2):
        if len(row) < len(header):
            raise SmoothcertError(f"{path}, line {number}: expected {len(header)} fields, but got {len(row)}.")
    if not rows:
        raise SmoothcertError(f"{path} has no rows yet.")
    try:
        columns = {name: [row[i] for row in rows] for i, name in enumerate(header)}
        numbers = {name: np.array(columns[name], dtype=np.float64) for name in _REQUIRED}
        seconds = _parse_times(columns["time"]) if "time" in columns else np.zeros(len(rows))
    except ValueError as error:
        raise SmoothcertError(f"{path} has a field that is not a number ({error}).") from error
    sidecar = sidecar_path(path)
    results = Results(
        name=results_stem(path),
        idx=numbers["idx"].astype(np.int64),
        label=numbers["label"].astype(np.int64),
        predict=numbers["predict"].astype(np.int64),
        radius=numbers["radius"],
        correct=numbers["correct"] == 1,
        seconds=seconds,
        about=read_sidecar(sidecar) if sidecar.exists() else {},
    )
    _check_rows(path, results)
    return results


def _parse_times(texts: list[str]) -> NDArray[np.float64]:
    """Parse the times of all rows, each different text once: most rows share a few of them."""
    known = {text: parse_seconds(text) for text in set(texts)}
    return np.array([known[text] for text in texts])


def _check_rows(path: Path, results: Results) -> None:
    """Raise if rows are impossible, as in a file that was edited or concatenated from two."""
    idx, radius = results.idx, results.radius
    values, repeats = np.unique(idx, return_counts=True)
    for images, problem in (
        (idx[~((radius >= 0) & np.isfinite(radius))], "has a radius that is not a finite number >= 0"),
        (values[repeats > 1], "appears twice"),
        (idx[(results.predict < 0) & (radius > 0)], "has a positive radius although the classifier abstained"),
    ):
        if len(images):
            raise SmoothcertError(f"{path} is damaged: image {images[0]} {problem}.")


def read_counts(path: str | Path, num_classes: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    r"""Read the class counts beside a certification results file.

    Args:
        path: Path of the results file; its counts lie beside it in `name.counts.tsv`.
        num_classes: Number of classes of the base classifier; default: as the sidecar or the dataset says, else up to
            the last class with a vote.

    Returns:
        The votes in the selection stage and in the estimation stage, each [images, classes].

    Raises:
        SmoothcertError: If the counts cannot be read, or name a class beyond `num_classes`.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.counts.tsv").write_text("idx\tselection\testimation\n7\t1:10\t1:98 0:2\n")
        >>> selection, estimation = read_counts(folder / "a.tsv", num_classes=2)
        >>> selection.tolist(), estimation.tolist()
        ([[0, 10]], [[2, 98]])
    """
    table = read_vote_table(Path(path))
    if num_classes is None:
        num_classes = _recorded_classes(Path(path)) or table.classes
    table.require_classes(num_classes, counts_path(Path(path)))
    return table.dense(0, len(table), num_classes)


def _recorded_classes(path: Path) -> int | None:
    """Return the number of classes that the sidecar records, or that its dataset has; None if unknown."""
    sidecar = sidecar_path(path)
    settings = read_sidecar(sidecar).get("settings", {}) if sidecar.exists() else {}
    return settings.get("classes") or classes_of(str(settings.get("data", {}).get("name")))


def read_vote_table(path: Path) -> VoteTable:
    """Return all class counts beside a results file, except an incomplete last line."""
    return read_vote_file(counts_path(path))


def read_vote_file(source: Path) -> VoteTable:
    """Return all class counts in a file of counts, except an incomplete last line."""
    return parse_votes(_try(read_bytes, source), source)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, decompressed if its name ends in .gz."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def read_text(path: Path) -> str:
    """Return the text of a file, decompressed if its name ends in .gz."""
    return read_bytes(path).decode() if path.suffix == ".gz" else path.read_text(encoding="utf-8")


def try_reading(path: Path) -> str:
    """Return the text of a file as `read_text` does; raise SmoothcertError if it cannot be read."""
    return _try(read_text, path)


def _try(read: Callable[[Path], T], path: Path) -> T:
    try:
        return read(path)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise SmoothcertError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}).") from error
