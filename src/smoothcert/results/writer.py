"""Writing per-image results so that a kill at any moment loses nothing but the images in flight.

Rows are only ever appended, counts first; after an interruption the rows that both files hold in full are good, and
whatever follows them is cut off.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, ClassVar, Protocol

from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.results.reader import BESIDE, counts_path, read_sidecar, sidecar_path, write_sidecar
from smoothcert.runtime.atomic_files import open_locked

_SECONDS_BETWEEN_NOTES = 10.0  # of the time spent, in the sidecar


class Row(Protocol):
    """What can be written: a record with its line and its line of class counts."""

    columns: ClassVar[tuple[str, ...]]
    count_columns: ClassVar[tuple[str, ...]]

    def row(self) -> str:
        """The line of the results file."""

    def count_row(self) -> str:
        """The line of the file of counts."""


class ResultWriter:
    """Appends records to a results file, or goes on with one that was interrupted.

    `settings` is what the rows depend on: a file made with other settings is refused. `segment` says who computes the
    rows from here on (device, versions); each start adds one to the sidecar.
    """

    def __init__(
        self,
        path: Path,
        kind: type[Row],
        indices: Sequence[int],
        settings: Mapping[str, Any],
        segment: Mapping[str, Any],
    ) -> None:
        check_name(path)
        self.path, self.indices = path, list(indices)
        self._headers = tuple("\t".join(names) + "\n" for names in (kind.columns, kind.count_columns))
        self._about = self._open_sidecar(settings)
        self._started = self._noted = time.perf_counter()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._files = (open_locked(path), open_locked(counts_path(path)))
            self.done = self._recover()
            if self.done < len(self.indices):
                self._about["segments"].append({"first_row": self.done, **segment})
                self._write_sidecar()
        except OSError as error:
            raise cannot_write(path, error) from error

    def __enter__(self) -> ResultWriter:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files:
            with suppress(OSError):  # what append could not flush, it reported; the next start cuts it off
                file.close()

    def append(self, records: Sequence[Row]) -> None:
        """Write records to disk, in the order of the indices."""
        rows, counts = self._files
        try:
            counts.write("".join(record.count_row() for record in records))
            counts.flush()
            rows.write("".join(record.row() for record in records))
            rows.flush()
            self.done += len(records)
            if self.done == len(self.indices) or time.perf_counter() - self._noted > _SECONDS_BETWEEN_NOTES:
                self._noted = time.perf_counter()
                self._about["segments"][-1]["seconds"] = round(self._noted - self._started, 3)
                self._write_sidecar()
        except OSError as error:
            raise cannot_write(self.path, error, f" The first {self.done} images are safe.") from error

    def _open_sidecar(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        begun = self.path.exists() and not self._headers[0].encode().startswith(self.path.read_bytes())
        for beside in (sidecar_path(self.path), counts_path(self.path)):
            if begun and not beside.exists():
                lacking = f"{self.path} exists, but {beside.name} beside it does not"
                raise UsageError(f"{lacking}; move it away or choose another `--out`.")
        return open_sidecar(self.path, settings)

    def _write_sidecar(self) -> None:
        write_sidecar(self.path, self._about)

    def _recover(self) -> int:
        """Cut both files to the rows that both hold in full, and return how many those are."""
        rows, counts = (whole_lines(file) for file in self._files)
        good = min(len(rows), len(counts), 1 + len(self.indices))
        for lines, header in zip((rows, counts), self._headers, strict=True):
            if lines[:1] not in ([], [header]):
                raise UsageError(f"{self.path} does not begin with the columns of such a results file.")
        for line, count_line, expected in zip(rows[1:good], counts[1:good], self.indices, strict=False):
            if not (line.startswith(f"{expected}\t") and count_line.startswith(f"{expected}\t")):
                raise UsageError(f"{self.path} has another row where image {expected} should be; it was edited.")
        for file, lines in zip(self._files, (rows, counts), strict=True):
            file.truncate(sum(len(line.encode()) for line in lines[:good]))
        if good == 0:
            for file, header in zip(self._files, self._headers, strict=True):
                file.write(header)
                file.flush()
        return max(0, good - 1)


def check_name(out: Path) -> None:
    """Refuse folders, devices, and names that clash with what lies beside results or say that the file is packed."""
    if out.suffix in (".json", ".gz") or out.name.endswith(BESIDE) or (out.exists() and not out.is_file()):
        raise UsageError(f"`--out` {out} is no name for results; choose one ending in .tsv.")


def open_sidecar(results: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sidecar of a results file, new or as it was; refuse one of other settings, if it has results."""
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    path = sidecar_path(results)
    if not path.exists():
        return {"settings": plain, "segments": []}
    about = read_sidecar(path)
    before = about.get("settings", {})
    changed = sorted(key for key in {*before, *plain} if before.get(key) != plain.get(key))
    if changed and not _has_rows(results):  # a start that came to nothing must not bar the way of the next one
        return {"settings": plain, "segments": []}
    if changed:
        what = "; ".join(_change(key, before.get(key), plain.get(key)) for key in changed)
        raise UsageError(f"{results} was made with other settings ({what}); move it away or choose another `--out`.")
    return {"settings": before, "segments": list(about.get("segments", []))}


def _change(key: str, before: Any, now: Any) -> str:
    """Say what became of a setting; of one that has parts, of those that changed."""
    if not (isinstance(before, dict) and isinstance(now, dict)):
        was, is_now = ("not said" if value is None else value for value in (before, now))
        return f"{key} was {was}, now {is_now}"
    parts = sorted(part for part in {*before, *now} if before.get(part) != now.get(part))
    return "; ".join(_change(f"{key}.{part}", before.get(part), now.get(part)) for part in parts)


def _has_rows(results: Path) -> bool:
    """Whether a results file, or a table beside it, holds more than its header."""
    stem = sidecar_path(results).name.removesuffix(".json")
    files = [results, *(results.with_name(stem + end) for end in BESIDE)]
    return any(file.is_file() and file.read_bytes().count(b"\n") > 1 for file in files)


def whole_lines(file: IO[str]) -> list[str]:
    """Return the lines of a file, without one that a kill cut off."""
    file.seek(0)
    lines = file.readlines()
    return lines[:-1] if lines and not lines[-1].endswith("\n") else lines


def cannot_write(path: Path, error: OSError, safe: str = "") -> SmoothcertError:
    """Return the error for a file that cannot be written."""
    return SmoothcertError(
        f"{path} cannot be written ({error.strerror or error}).{safe} Make room or choose another `--out`; "
        "the same command then goes on where this one stopped."
    )
