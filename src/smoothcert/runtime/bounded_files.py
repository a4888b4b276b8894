"""Read files without using more memory than their size justifies.

A small file can need a lot of memory: a gzip file of 4 MB can expand to 4 GB of zeros, and /dev/zero never ends. The
functions of this module therefore have limits.
"""

from __future__ import annotations

import gzip
import zipfile
import zlib
from pathlib import Path
from typing import IO

from smoothcert.errors import SmoothcertError, first_line

MAX_RATIO = 32
"""Largest allowed compression ratio; results files and datasets have ratios of 2 to 12."""
SLACK = 16 << 20
"""Bytes of content allowed in any file, so that small files with a high compression ratio are accepted."""


def most_bytes(compressed: int) -> int:
    """Return the maximum size allowed for the content of a compressed file."""
    return MAX_RATIO * compressed + SLACK


def read_bytes(path: Path, *, decompress: bool | None = None) -> bytes:
    """Return the content of a file; raise SmoothcertError if it cannot be read or is suspiciously large.

    With `decompress`, the file is read as a gzip file (default: if its name ends in .gz).
    """
    try:
        if path.is_fifo():
            raise SmoothcertError(f"{path} cannot be read: it is a pipe, not a file.")  # opening it might never end
        with path.open("rb") as file:
            if path.suffix == ".gz" if decompress is None else decompress:
                with gzip.GzipFile(fileobj=file) as stream:
                    return _read(stream, most_bytes(path.stat().st_size), path)
            return _read(file, max(path.stat().st_size, SLACK), path)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise SmoothcertError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}).") from error


def read_text(path: Path) -> str:
    """Read a file with `read_bytes` and decode it as UTF-8."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise SmoothcertError(f"{path} cannot be read as UTF-8 ({error.reason}).") from error


def _read(stream: IO[bytes] | gzip.GzipFile, most: int, path: Path) -> bytes:
    content = stream.read(most + 1)
    if len(content) > most:
        raise SmoothcertError(f"{path} contains more than {most / 1e6:,.0f} MB, too much for its size.")
    return content


def check_members(archive: Path, *, compressed: bool = True) -> None:
    """Raise unless a zip archive contains only regular files and folders, of a total size plausible for the archive.

    With `compressed=False`, the total size of the members must not exceed the size of the archive.
    """
    try:
        with zipfile.ZipFile(archive) as file:
            members = file.infolist()
    except (OSError, ValueError, NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise SmoothcertError(f"{archive} cannot be read as a zip archive ({reason}).") from error
    total, size = sum(member.file_size for member in members), archive.stat().st_size
    most = most_bytes(size) if compressed else size
    if total > most:
        raise SmoothcertError(
            f"{archive} declares {total / 1e6:,.0f} MB of content; expected at most {most / 1e6:,.0f} MB for its size."
        )
    for member in members:
        kind = member.external_attr >> 28  # the type of a file on Unix: 8 is a regular file, 4 a folder, 0 unknown
        if kind not in (0, 4, 8):
            raise SmoothcertError(
                f"{archive}: expected only regular files, but {member.filename!r} is a link or device."
            )
