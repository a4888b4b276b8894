"""Lock that lets only one process at a time write a results file and the files beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from smoothcert.errors import SmoothcertError
from smoothcert.results.naming import counts_path, looks_path, sidecar_path
from smoothcert.runtime.atomic_files import open_locked


class ResultsLock:
    """Lock on `NAME.tsv` and the files beside it, from the creation of the object until `release`.

    The lock is on a separate file, `NAME.tsv.lock`, since results files may be replaced while they are locked.
    Acquiring the lock removes partial files left by a killed process. `others` are additional files that belong to the
    results, such as the counts files of a cascade.
    """

    def __init__(self, results: Path, others: Sequence[Path] = ()) -> None:
        self._results, self._path = results, results.with_name(results.name + ".lock")
        files = (results, counts_path(results), looks_path(results), sidecar_path(results), *others)
        try:
            results.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._open()
            self._new = [file for file in files if not file.exists()]
            for file in files:
                file.with_name(file.name + ".part").unlink(missing_ok=True)
        except OSError as error:
            raise cannot_write(results, error) from error

    def _open(self) -> IO[str]:
        while True:
            file = open_locked(self._path, f"{self._results} is being written by another process.")
            if _is_open_at(file, self._path):
                return file
            file.close()  # the previous owner removed the lock file after this process had opened it

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Release the lock and remove new files if the `with` block, which opens the files, raises an error."""
        try:
            yield
        except BaseException as error:
            self.release(undo=True)
            if isinstance(error, OSError):
                raise cannot_write(self._results, error) from error
            raise

    def release(self, *, undo: bool = False) -> None:
        """Release the lock; with `undo`, first remove the files that did not exist when it was acquired."""
        with suppress(OSError):  # on Windows, an open file cannot be removed
            for file in self._new if undo else ():
                file.unlink(missing_ok=True)
            self._path.unlink(missing_ok=True)
        self._file.close()

    def __enter__(self) -> ResultsLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release(undo=kind is not None)


def require_in_place(file: IO[str], path: Path) -> None:
    """Raise if a file that is being written was removed or replaced by another process."""
    if not _is_open_at(file, path):
        raise SmoothcertError(
            f"{path} was removed or replaced while it was being written; choose another `out` and start again."
        )


def _is_open_at(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def cannot_write(path: Path, error: OSError, safe: str = "") -> SmoothcertError:
    """Return the error for a file that cannot be written."""
    return SmoothcertError(
        f"{path} cannot be written ({error.strerror or error}).{safe} Fix this and rerun, or choose another `out`."
    )
