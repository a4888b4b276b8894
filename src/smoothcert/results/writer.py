"""Write per-image results so that a killed process loses only the images that were not finished.

Rows are only appended, first to the counts file, then to the results file. After an interruption, the rows that are
complete in both files are kept, and everything after them is cut off.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Generic

from smoothcert.errors import UsageError
from smoothcert.results.lock import ResultsLock, cannot_write, require_in_place
from smoothcert.results.naming import check_name, counts_path, sidecar_path
from smoothcert.results.records import R, Record, complete_lines, format_row, parse_record
from smoothcert.results.sidecar import check_function, open_sidecar, require_beside, write_sidecar
from smoothcert.runtime.atomic_files import flush_to_disk, write_text

_SECONDS_BETWEEN_SIDECARS = 10.0  # minimum interval between updates of the time spent


class ResultWriter(Generic[R]):
    """Writer that appends records to a new or an interrupted results file.

    A file is refused if it was made with different `settings`, which must contain everything that the rows depend on.
    `indices` are the images of the rows in order, and `segment` describes this process in the sidecar.
    """

    def __init__(
        self,
        path: Path,
        kind: type[R],
        indices: Sequence[int],
        settings: Mapping[str, Any],
        segment: Mapping[str, Any],
    ) -> None:
        check_name(path)
        self.path, self.kind, self.indices = path, kind, list(indices)
        self._headers = format_row(*kind.columns), format_row(*kind.count_columns)
        self._started = self._noted = time.perf_counter()
        self._lock = ResultsLock(path)
        with self._lock.opening():
            if path.exists() and not self._headers[0].encode().startswith(path.read_bytes()):  # there are rows
                require_beside(path, sidecar_path(path))
                require_beside(path, counts_path(path))
            self._about = open_sidecar(path, settings)
            self._files = (_open(path), _open(counts_path(path)))
            self.done = self._recover()
            if self.done < len(self.indices):
                if self.done:
                    check_function(path, self._about["segments"], segment)
                self._about["segments"].append({"first_row": self.done, **segment})
                write_sidecar(path, self._about)

    def __enter__(self) -> ResultWriter[R]:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if kind is None:
                self._require_in_place()
                for path in (self.path, counts_path(self.path), self.path.parent):
                    flush_to_disk(path)
        finally:
            for file in self._files:
                with suppress(OSError):  # `append` has reported the error; resuming cuts off the incomplete row
                    file.close()
            self._lock.release(undo=kind is not None and not self.done)

    def stored_records(self, num_classes: int | None) -> list[R]:
        """Return the records stored so far; without `num_classes`, infer it from the largest class with votes."""
        rows, counts = (stored_lines(file)[1 : 1 + self.done] for file in self._files)
        try:
            labels = (int(pair.split(":")[0]) for line in counts for pair in line.split() if ":" in pair)
            classes = num_classes or 1 + max(labels, default=0)
            return [parse_record(self.kind, *lines, classes) for lines in zip(rows, counts, strict=True)]
        except (ValueError, LookupError) as error:
            raise UsageError(
                f"{self.path} has an unreadable row ({error}); move it elsewhere or choose another `out`."
            ) from error

    def append(self, records: Sequence[R]) -> None:
        """Append records, with their votes."""
        rows, counts = self._files
        try:
            counts.write("".join(record.count_row() for record in records))
            counts.flush()
            rows.write("".join(record.row() for record in records))
            rows.flush()
            self._require_in_place()
            self.done += len(records)
            if self.done == len(self.indices) or time.perf_counter() - self._noted > _SECONDS_BETWEEN_SIDECARS:
                self._noted = time.perf_counter()
                self._about["segments"][-1]["seconds"] = round(self._noted - self._started, 3)
                write_sidecar(self.path, self._about)
        except OSError as error:
            safe = f" The first {self.done} images are safe; a rerun resumes after them."
            raise cannot_write(self.path, error, safe) from error

    def _require_in_place(self) -> None:
        for file, path in zip(self._files, (self.path, counts_path(self.path)), strict=True):
            require_in_place(file, path)

    def _recover(self) -> int:
        """Truncate both files to the rows that are complete in both; return the number of these rows."""
        rows, counts = (stored_lines(file) for file in self._files)
        good = min(len(rows), len(counts), 1 + len(self.indices))
        for file, lines, header in zip(self._files, (rows, counts), self._headers, strict=True):
            if lines[:1] not in ([], [header]):
                names = ", ".join(header.split())
                raise UsageError(f"Expected {file.name} to begin with the columns {names}; choose another `out`.")
        for line, count_line, expected in zip(rows[1:good], counts[1:good], self.indices, strict=False):
            if not (line.startswith(f"{expected}\t") and count_line.startswith(f"{expected}\t")):
                raise UsageError(
                    f"{self.path} or {counts_path(self.path).name} has the row of another image where image {expected} "
                    "should be; move the edited files elsewhere or choose another `out`."
                )
        for file, lines, header in zip(self._files, (rows, counts), self._headers, strict=True):
            keep_lines(file, lines[:good], header)
        return max(0, good - 1)


def _open(path: Path) -> IO[str]:
    return path.open("a+", encoding="utf-8", newline="\n")


def write_rows(path: Path, records: Sequence[Record]) -> None:
    """Write a complete results file and its counts, each atomically."""
    write_text(counts_path(path), counts_text(records))
    write_text(path, rows_text(records))


def rows_text(records: Sequence[Record]) -> str:
    """Format records as the text of a results file."""
    return format_row(*Record.columns) + "".join(record.row() for record in records)


def counts_text(records: Sequence[Record]) -> str:
    """Format the votes of records as the text of a counts file."""
    return format_row(*Record.count_columns) + "".join(record.count_row() for record in records)


def stored_lines(file: IO[str]) -> list[str]:
    """Return the complete lines of an open file."""
    file.seek(0)
    try:
        return complete_lines(file.read())
    except UnicodeDecodeError as error:
        text = f"{file.name} cannot be read as UTF-8 ({error.reason})"
        raise UsageError(f"{text}; move the damaged file elsewhere or choose another `out`.") from error


def keep_lines(file: IO[str], lines: Sequence[str], header: str) -> None:
    """Truncate a file to `lines`, which are its first lines; if `lines` is empty, write the header."""
    file.truncate(sum(len(line.encode()) for line in lines))
    if not lines:
        file.write(header)
        file.flush()
