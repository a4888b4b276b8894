"""Write files completely or not at all, lock them, and hash them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from smoothcert.errors import SmoothcertError, UsageError


def check_replaceable(path: Path) -> None:
    """Raise if `path` is a folder, or a device such as /dev/null, which must not be replaced."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; choose a file instead.")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a regular file and will not be replaced; choose another file.")


@contextmanager
def replacing(path: Path, keep: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path to write to. It replaces `path` atomically if the block succeeds.

    The new content is on the disk before it replaces the old content, so that a crash of the machine leaves either the
    old or the new file. With `keep`, the old file is renamed to `keep` before the new file takes its place. If the
    process is killed in between, `path` does not exist, but `keep` does.
    """
    check_replaceable(path)
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        part.chmod(0o666 & ~_umask())
        flush_to_disk(part)
        if keep and path.is_file():
            os.replace(path, keep)
        os.replace(part, path)
        flush_to_disk(path.parent)
    except OSError as error:
        raise SmoothcertError(f"{path} cannot be written ({error.strerror or error}).") from error
    finally:
        with suppress(OSError):  # the file might not exist; an error raised in the block must stay visible
            part.unlink()


def flush_to_disk(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk; do nothing on systems that do not support it."""
    with suppress(PermissionError):  # Windows does not open folders
        handle = os.open(path, os.O_RDONLY)
        try:
            with suppress(OSError):  # some network file systems
                os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def open_locked(path: Path, message: str = "") -> IO[str]:
    """Open and lock a file for reading and appending; raise UsageError, with `message`, if it is already locked."""
    file = path.open("a+", encoding="utf-8", newline="\n")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # this platform has no file locks
        pass
    except BlockingIOError:
        file.close()
        raise UsageError(message or f"{path} is being written by another process; wait until it ends.") from None
    return file


def file_hash(path: Path, algorithm: str = "sha256") -> str:
    """Return the hex digest of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()
