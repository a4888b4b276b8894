"""Find and read dataset files: uncompressed, gzipped, or in a tar archive."""

from __future__ import annotations

import io
import os
import sys
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from torch import Tensor

from smoothcert.errors import SmoothcertError, first_line
from smoothcert.runtime.bounded_files import read_bytes

Arrays = tuple[Tensor, Tensor]
"""Images, uint8 [count, channels, height, width], and labels, int64 [count]."""


def data_dir(root: str | Path | None = None) -> Path:
    """Return the folder with the datasets: `root`, else $SMOOTHCERT_DATA, else the platform's cache folder."""
    chosen = (os.environ.get("SMOOTHCERT_DATA") or None) if root is None else root
    if chosen is not None:
        return Path(chosen).expanduser()
    local = os.environ.get("LOCALAPPDATA", "~/AppData/Local")
    others = {"win32": local, "darwin": "~/Library/Caches"}
    base = others.get(sys.platform) or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "smoothcert" / "data"


def folders(root: Path, names: Iterable[str]) -> Iterator[Path]:
    """Yield each existing folder `root/name`, and `root` itself if its path ends with one of the names."""
    for name in names:
        if (root / name).is_dir():
            yield root / name
        if root.is_dir() and root.resolve().as_posix().lower().endswith("/" + name.lower()):
            yield root


def read_file(path: Path) -> bytes:
    """Return the content of a file, decompressed if it is gzipped. The file's extension does not matter."""
    try:
        with path.open("rb") as file:
            gzipped = file.read(2) == b"\x1f\x8b"
        return read_bytes(path, decompress=gzipped)
    except (OSError, SmoothcertError) as error:
        raise SmoothcertError(f"{first_line(error)}; download it again.") from error


def read_members(archive: Path, names: Sequence[str]) -> list[bytes]:
    """Return the contents of files in a gzipped tar archive, given their base names."""
    contents = dict[str, bytes]()
    try:
        # Limit the decompressed size, since tarfile trusts the size that some headers declare.
        with io.BytesIO(read_bytes(archive, decompress=True)) as unpacked, tarfile.open(fileobj=unpacked) as tar:
            for member in tar:
                name = Path(member.name).name
                if name not in names or name in contents or member.isdir():
                    continue
                stream = tar.extractfile(member) if member.isreg() else None
                if stream is None:
                    raise SmoothcertError(f"{archive}: expected {name!r} to be a regular file.")
                contents[name] = stream.read()
    except (OSError, EOFError, ValueError, OverflowError, tarfile.TarError, zlib.error, SmoothcertError) as error:
        reason = first_line(error).removeprefix(f"{archive}").strip(": ")
        raise SmoothcertError(f"{archive} cannot be read ({reason}); download it again.") from error
    if missing := [name for name in names if name not in contents]:
        raise SmoothcertError(f"{archive} has no file {missing[0]!r}; download it again.")
    return [contents[name] for name in names]
