"""Files that are whole or not there at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smoothcert.errors import SmoothcertError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a name to write to; it takes the place of `path`, in one step, when the block ends without an error."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        part.chmod(0o666 & ~_umask())
        os.replace(part, path)
    except OSError as error:
        raise SmoothcertError(f"{path} cannot be written ({error.strerror or error}).") from error
    finally:
        part.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    """Write a small text file in one step."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def file_hash(path: Path, algorithm: str = "sha256") -> str:
    """Return the hex digest of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()
