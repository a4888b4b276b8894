"""Finding a data set's files where users have them: plain, gzipped, or inside the official archive."""

from __future__ import annotations

import gzip
import os
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from torch import Tensor

from smoothcert.errors import SmoothcertError

Opener = Callable[[str], bytes]
"""Returns the content of a file by its base name."""

Arrays = tuple[Tensor, Tensor]
"""Images, uint8 [count, channels, height, width], and labels, int64 [count]."""


def data_dir(root: str | Path | None = None) -> Path:
    """Return where data sets live: the argument, else $SMOOTHCERT_DATA, else the platform's cache folder."""
    if root is not None:
        return Path(root).expanduser()
    if from_environment := os.environ.get("SMOOTHCERT_DATA"):
        return Path(from_environment).expanduser()
    return cache_dir() / "data"


def cache_dir() -> Path:
    """Return the folder in which this user's programs keep what they can make or fetch again."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "~/AppData/Local")
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "smoothcert"


def folders(root: Path, names: Iterable[str]) -> Iterator[Path]:
    """Yield the existing folders of that name below root, and root itself if it bears one of the names."""
    for name in names:
        if (root / name).is_dir():
            yield root / name
        if root.is_dir() and root.resolve().as_posix().lower().endswith("/" + name.lower()):
            yield root


def read_file(path: Path) -> bytes:
    """Return a file's content, unpacked if it is gzipped, whatever its name says."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    except (OSError, EOFError, zlib.error) as error:
        raise SmoothcertError(f"{path} cannot be read ({error}); fetch it again.") from error


def open_folder(folder: Path) -> Opener:
    """Return an opener for the files of a folder."""
    return lambda name: read_file(folder / name)


def open_archive(archive: Path) -> Opener:
    """Return an opener for the members of a tar archive, found by their base names."""

    def read(name: str) -> bytes:
        try:
            with tarfile.open(archive) as tar:
                for member in tar:
                    stream = tar.extractfile(member) if Path(member.name).name == name else None
                    if stream is not None:
                        return stream.read()
        except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
            raise SmoothcertError(f"{archive} cannot be read ({error}); fetch it again.") from error
        raise SmoothcertError(f"{archive} holds no file {name!r}; fetch it again.")

    return read
