"""Store the votes of sequential certification on disk, so that anyone can recompute the certificates.

Sequential certification draws the noise samples of an image in steps and tests after each step. These interim tests are
called looks. `name.looks.tsv` has one row per image and look, with the columns idx, look, samples, votes (as
`class:count`) and time. Look 0 is the selection. Samples and votes of later looks are cumulative and do not include the
selection.

A run appends a row after each look. When it ends, it writes `name.tsv` and `name.counts.tsv` from the looks and, if it
is finished, sorts the rows of `name.looks.tsv`. A run with a budget also writes the two files at intervals.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

from smoothcert.errors import UsageError, quote
from smoothcert.results.lock import ResultsLock, cannot_write, require_in_place
from smoothcert.results.naming import check_name, looks_path, sidecar_path
from smoothcert.results.records import Record, complete_lines, format_row, pack_votes, parse_seconds, unpack_votes
from smoothcert.results.sidecar import check_function, open_sidecar, require_beside, write_sidecar
from smoothcert.results.vote_table import check_table_size
from smoothcert.results.writer import keep_lines, stored_lines, write_rows
from smoothcert.runtime.atomic_files import write_text
from smoothcert.runtime.bounded_files import read_text
from smoothcert.statistics.bounds import Ints

_HEADER = format_row("idx", "look", "samples", "votes", "time")
_NAMES = "idx, look, samples, votes and time"
_REMEDY = "restore the original file or repeat the certification"


@dataclass(frozen=True)
class Look:
    """One look at image `idx`: the cumulative votes [classes], and the seconds spent since the previous look."""

    idx: int
    look: int
    votes: Ints
    seconds: float

    def row(self) -> str:
        """Format the look as a line of the looks file."""
        samples, votes = int(self.votes.sum()), pack_votes(self.votes.tolist())
        return format_row(self.idx, self.look, samples, votes, timedelta(seconds=self.seconds))


def looks_text(looks: Mapping[int, Sequence[Look]]) -> str:
    """Format looks as the text of a looks file."""
    return _HEADER + "".join(look.row() for seen in looks.values() for look in seen)


def read_looks(path: str | Path, classes: int) -> dict[int, list[Look]]:
    """Return the looks stored beside the results file `path`, keyed by image index."""
    source = looks_path(Path(path))
    return _parse_looks(complete_lines(read_text(source)), classes, source)


def _parse_looks(lines: Sequence[str], classes: int, source: Path) -> dict[int, list[Look]]:
    if not lines or lines[0] != _HEADER:
        raise UsageError(f"Expected {source} to begin with the columns {_NAMES}; {_REMEDY}.")
    check_table_size(len(lines), classes, source)
    looks = defaultdict[int, list[Look]](list)
    for number, line in enumerate(lines[1:], 2):
        try:
            idx, look, samples, votes, elapsed = line.rstrip("\n").split("\t")
            row = Look(int(idx), int(look), unpack_votes(votes, classes), parse_seconds(elapsed))
            valid = row.votes.sum() == int(samples) and row.look == len(looks[row.idx])
        except (ValueError, IndexError, OverflowError):
            valid = False
        if not valid:
            raise UsageError(
                f"{source}, line {number}: expected {_NAMES} of an image's next look, but got {quote(line)}; {_REMEDY}."
            )
        looks[row.idx].append(row)
    return dict(looks)


class LooksInMemory:
    """The looks of one run; `known` maps the index of each image to its looks so far."""

    def __init__(self) -> None:
        self.known: dict[int, list[Look]] = {}

    def __enter__(self) -> LooksInMemory:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        pass

    def append(self, looks: Sequence[Look]) -> None:
        """Append looks; each must directly follow its image's last look."""
        for look in looks:
            self.known.setdefault(look.idx, []).append(look)

    def publish(self, records: Sequence[Record], *, finished: bool) -> None:
        """Write the files that readers of the results need, if the run has files."""


class LookStore(LooksInMemory):
    """The looks of one run on disk, including those from before an interruption.

    A file is refused if it was made with different `settings`, which must contain everything that the looks depend on.
    `indices` are the images of the results in order, and `segment` describes this process in the sidecar.
    """

    def __init__(
        self,
        path: Path,
        indices: Sequence[int],
        classes: int,
        settings: Mapping[str, Any],
        segment: Mapping[str, Any],
    ) -> None:
        super().__init__()
        check_name(path)
        self.path, self._segment = path, dict(segment)
        self._started, self._order = time.perf_counter(), {index: place for place, index in enumerate(indices)}
        self._lock = ResultsLock(path)
        with self._lock.opening():
            self._file = self._open(classes, settings)

    def _open(self, classes: int, settings: Mapping[str, Any]) -> IO[str]:
        """Check that the settings match, and read the looks that an interrupted run has stored."""
        path, looks = self.path, looks_path(self.path)
        for file in (path, looks):
            if file.exists() and file.stat().st_size:
                require_beside(file, sidecar_path(path))
        self._about = open_sidecar(path, settings)
        opened = looks.open("a+", encoding="utf-8", newline="\n")
        lines = stored_lines(opened)
        self.known = _parse_looks(lines or [_HEADER], classes, looks)
        if unknown := self.known.keys() - self._order.keys():
            raise UsageError(
                f"{looks} contains looks for image {min(unknown)}, which is not part of this run; choose another `out`."
            )
        write_sidecar(path, self._about)  # before the first row: rows without a sidecar are refused
        keep_lines(opened, lines, _HEADER)
        return opened

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with suppress(OSError):  # `append` has reported the error
            self._file.close()
        self._lock.release(undo=kind is not None and not self.known)

    def append(self, looks: Sequence[Look]) -> None:
        """Append looks to the file; each must directly follow its image's last look."""
        if not looks:
            return
        if self._segment:
            self._begin_segment()
        super().append(looks)
        try:
            self._file.write("".join(look.row() for look in looks))
            self._file.flush()
            require_in_place(self._file, looks_path(self.path))
        except OSError as error:
            raise cannot_write(self.path, error, " Earlier looks are safe; a rerun resumes after them.") from error

    def _begin_segment(self) -> None:
        """Describe this process in the sidecar, before its first look."""
        segments, first = self._about["segments"], sum(map(len, self.known.values()))
        if first:
            check_function(self.path, segments, self._segment)
        segments.append({"first_look": first, **self._segment})
        self._segment = {}
        write_sidecar(self.path, self._about)

    def publish(self, records: Sequence[Record], *, finished: bool) -> None:
        """Write the results file, counts file and sidecar; if `finished`, also sort the looks file."""
        ends = ((looks[0], *looks[1:][-1:]) for looks in self.known.values())  # later votes are cumulative
        self._about["samples"] = sum(int(look.votes.sum()) for pair in ends for look in pair)
        if not self._segment:
            self._about["segments"][-1]["seconds"] = round(time.perf_counter() - self._started, 3)
        if finished:
            ordered = sorted(self.known, key=self._order.__getitem__)
            write_text(looks_path(self.path), looks_text({idx: self.known[idx] for idx in ordered}))
        write_rows(self.path, records)
        write_sidecar(self.path, self._about)
