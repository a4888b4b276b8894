"""The votes of every look on disk, so that anyone can recompute a sequential certificate.

`name.looks.tsv` has a row for each look at each image: idx, look (0 is the selection), samples, and the votes among
them as `class:count`, cumulated over the looks after the selection. While a run is under way rows are appended as they
come; when it is done they are put in order, and `name.tsv` and `name.counts.tsv` are written from them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import UsageError
from smoothcert.results.reader import (
    Record,
    counts_path,
    pack_votes,
    parse_seconds,
    sidecar_path,
    try_reading,
    unpack_votes,
    write_rows,
    write_sidecar,
)
from smoothcert.results.writer import cannot_write, check_name, open_sidecar, whole_lines
from smoothcert.runtime.atomic_files import open_locked, write_text

COLUMNS = ("idx", "look", "samples", "votes", "time")
_HEADER = "\t".join(COLUMNS) + "\n"


@dataclass(frozen=True)
class Look:
    """The votes [classes] that one look saw, and the seconds spent since the one before."""

    idx: int
    look: int
    votes: NDArray[np.int64]
    seconds: float

    def row(self) -> str:
        """The TSV line."""
        fields = (self.idx, self.look, int(self.votes.sum()), pack_votes(self.votes.tolist()))
        return "\t".join(map(str, fields)) + f"\t{timedelta(seconds=self.seconds)}\n"


def looks_path(path: Path) -> Path:
    """Return where the looks beside a results file lie."""
    counts = counts_path(path)
    return counts.with_name(counts.name.replace(".counts.tsv", ".looks.tsv"))


def check_new(out: Path) -> None:
    """Refuse a name that is not for results, or under which they, or anything beside them, are there already."""
    check_name(out)
    if any(path.exists() for path in (out, sidecar_path(out), counts_path(out), looks_path(out))):
        raise UsageError(f"{out} exists; choose another `--out`.")


def looks_text(looks: Mapping[int, Sequence[Look]]) -> str:
    """Return a file of looks."""
    return _HEADER + "".join(look.row() for seen in looks.values() for look in seen)


def parse_looks(lines: Sequence[str], classes: int, source: Path) -> dict[int, list[Look]]:
    """Read lines of looks, those of an image in their order; anything else was edited."""
    if not lines or lines[0].rstrip("\n") != _HEADER.rstrip("\n"):
        raise UsageError(f"{source} does not begin with the columns of a file of looks.")
    found = defaultdict[int, list[Look]](list)
    for number, line in enumerate(lines[1:], 2):
        try:
            idx, look, samples, votes, elapsed = line.rstrip("\n").split("\t")
            row = Look(int(idx), int(look), unpack_votes(votes, classes), parse_seconds(elapsed))
            good = row.votes.sum() == int(samples) and row.look == len(found[row.idx])
        except (ValueError, IndexError):
            good = False
        if not good:
            raise UsageError(f"{source}, line {number}: that is not the look which should follow; it was edited.")
        found[row.idx].append(row)
    return dict(found)


class LookStore:
    """Keeps the looks of one run: on disk where it has a path, or else in memory alone.

    `known` holds, by image, the looks there are; a run that was interrupted finds them again. `settings` is what the
    looks depend on, `segment` says who makes those from here on; each start that makes any adds one to the sidecar.
    """

    def __init__(
        self,
        path: Path | None,
        indices: Sequence[int],
        classes: int,
        settings: Mapping[str, Any],
        segment: Mapping[str, Any],
    ) -> None:
        self.path, self.known, self._file = path, dict[int, list[Look]](), None
        self._started, self._order = time.perf_counter(), {index: place for place, index in enumerate(indices)}
        self.seconds_before, self._segment = 0.0, dict(segment)
        if path is None:
            return
        check_name(path)
        looks = looks_path(path)
        if not sidecar_path(path).exists() and any(file.exists() and file.stat().st_size for file in (path, looks)):
            raise UsageError(f"{path} exists, but no sidecar beside it; choose another `--out`.")
        self._about = open_sidecar(path, settings)
        self.seconds_before = sum(part.get("seconds", 0.0) for part in self._about["segments"])
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open_locked(looks)
            self._write_sidecar()  # before the first byte, which would otherwise belong to nobody
            self._recover(looks, classes)
        except OSError as error:
            raise cannot_write(path, error) from error

    def __enter__(self) -> LookStore:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file:
            with suppress(OSError):  # what append could not flush, it reported
                self._file.close()

    @property
    def drawn(self) -> int:
        """The samples of all looks so far: the selection's, and the last look's, which holds those before it."""
        ends = ((looks[0], *looks[1:][-1:]) for looks in self.known.values())
        return sum(int(look.votes.sum()) for pair in ends for look in pair)

    def append(self, looks: Sequence[Look]) -> None:
        """Add looks, each the next of its image."""
        if not looks:
            return
        first = sum(map(len, self.known.values())) if self._segment else 0
        for look in looks:
            self.known.setdefault(look.idx, []).append(look)
        if self._file and self.path:
            if self._segment:  # the first look of this start
                self._about["segments"].append({"first_look": first, **self._segment})
                self._segment = {}
                self._write_sidecar()
            try:
                self._file.write("".join(look.row() for look in looks))
                self._file.flush()
            except OSError as error:
                raise cannot_write(self.path, error, " The looks before are safe.") from error

    def publish(self, records: Sequence[Record], *, finished: bool) -> None:
        """Write rows and counts of the images that have an answer, and put the looks in order when all is done."""
        if self.path is None or self._file is None:
            return
        self._about["samples"] = self.drawn
        if not self._segment:
            self._about["segments"][-1]["seconds"] = round(time.perf_counter() - self._started, 3)
        if finished:
            ordered = sorted(self.known, key=self._order.__getitem__)
            write_text(looks_path(self.path), looks_text({idx: self.known[idx] for idx in ordered}))
        write_rows(self.path, records)
        self._write_sidecar()

    def _recover(self, looks: Path, classes: int) -> None:
        """Find the looks of a run that was interrupted, and cut off a row that was not written in full."""
        assert self._file is not None
        lines = whole_lines(self._file)
        self._file.truncate(sum(len(line.encode()) for line in lines))
        if not lines:
            self._file.write(_HEADER)
            self._file.flush()
            return
        self.known = parse_looks(lines, classes, looks)
        if strangers := self.known.keys() - self._order.keys():
            raise UsageError(f"{looks} has looks at image {min(strangers)}, which is not among those asked for.")

    def _write_sidecar(self) -> None:
        assert self.path is not None
        write_sidecar(self.path, self._about)


def read_looks(path: str | Path, classes: int) -> dict[int, list[Look]]:
    """Return the looks beside a results file, by image; without a last row that was not written in full."""
    source = looks_path(Path(path))
    lines = try_reading(source).splitlines(keepends=True)
    return parse_looks([line for line in lines if line.endswith("\n")], classes, source)
