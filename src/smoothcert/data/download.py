"""Download datasets over HTTPS from their official addresses, and verify the sizes and checksums of their files."""

from __future__ import annotations

import hashlib
import http.client
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from smoothcert.data.files import data_dir
from smoothcert.data.registry import missing
from smoothcert.dataset_names import CORRUPTED, canonical_name
from smoothcert.errors import SmoothcertError, UsageError, first_line, unknown_name
from smoothcert.runtime.atomic_files import file_hash, replacing
from smoothcert.runtime.bounded_files import check_members

OnBytes = Callable[[str, int, int | None], None]
"""A function called with the file name, the number of bytes received so far, and the total (None if unknown)."""


@dataclass(frozen=True)
class KnownFile:
    """The size of a file in bytes, and its SHA-256 or, for a file without a published SHA-256, its MD5."""

    size: int
    checksum: str

    @property
    def algorithm(self) -> str:
        """Name of the hash algorithm."""
        return "md5" if len(self.checksum) == 32 else "sha256"

    def matches(self, path: Path) -> bool:
        """Return True if a file has this size and checksum."""
        same_size = path.is_file() and path.stat().st_size == self.size
        return same_size and file_hash(path, self.algorithm) == self.checksum


@dataclass(frozen=True)
class DownloadSource:
    """Addresses to try in turn, the folder for the files, and the size and checksum of each file.

    If `unpacked` is given, the only file is an archive that is unpacked to a folder of that name and then removed.
    """

    addresses: tuple[str, ...]
    folder: str
    files: Mapping[str, KnownFile]
    unpacked: str = ""


def _zenodo(record: int, archive: str, known: KnownFile) -> DownloadSource:
    address = f"https://zenodo.org/records/{record}/files/"
    return DownloadSource((address,), "", {archive: known}, unpacked=Path(archive).stem)


_CIFAR = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
_IDX = tuple(f"{split}-{kind}-ubyte.gz" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
# Sizes and checksums are taken from TensorFlow Datasets, except for CIFAR-10 and CIFAR-100 (from Keras) and CIFAR-100-C
# (from its Zenodo record).
_MNIST = (
    KnownFile(9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    KnownFile(28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    KnownFile(1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    KnownFile(4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
)
_FASHION = (
    KnownFile(26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
    KnownFile(29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
    KnownFile(4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
    KnownFile(5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
)
_CIFAR10 = KnownFile(170_498_071, "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce")
_CIFAR100 = KnownFile(169_001_437, "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7")
_CIFAR10C = KnownFile(2_918_471_680, "c72763e101c723b7c507b96205f7e938912a5d587376173b825850cf3cb876a7")
_CIFAR100C = KnownFile(2_918_473_216, "11f0ed0f1191edbf9fa23466ae6021d3")
_MNISTC = KnownFile(246_661_575, "af9ee8c6a815870c7fdde5af84c7bf8db0bcfa1f41056db83871037fba70e493")
SOURCES = {
    "mnist": DownloadSource(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        "mnist",
        dict(zip(_IDX, _MNIST, strict=True)),
    ),
    "fashion_mnist": DownloadSource(
        ("https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",),
        "fashion_mnist",
        dict(zip(_IDX, _FASHION, strict=True)),
    ),
    "cifar10": DownloadSource(_CIFAR, "", {"cifar-10-python.tar.gz": _CIFAR10}),
    "cifar100": DownloadSource(_CIFAR, "", {"cifar-100-python.tar.gz": _CIFAR100}),
    "cifar10-c": _zenodo(2535967, "CIFAR-10-C.tar", _CIFAR10C),
    "cifar100-c": _zenodo(3555552, "CIFAR-100-C.tar", _CIFAR100C),
    "mnist-c": _zenodo(3239543, "mnist_c.zip", _MNISTC),
}


def fetch_dataset(
    name: str,
    root: str | Path | None = None,
    progress: OnBytes | None = None,
    sources: Mapping[str, DownloadSource] = SOURCES,
) -> list[Path]:
    """Download the missing files of a dataset, verify them, and return the paths of all files."""
    name = canonical_name(name)
    if name == "mnist-mini":
        raise UsageError("mnist-mini is part of the package; there is nothing to download.")
    if name == "imagenet":
        raise UsageError(f"ImageNet is available to registered users only. {missing('imagenet', data_dir(root))}")
    if name not in sources and name in CORRUPTED:
        raise UsageError(f"{name} cannot be downloaded; generate it with `smoothcert data make {name}`.")
    if name not in sources:
        raise unknown_name("dataset", name, sources)
    source, folder = sources[name], data_dir(root) / sources[name].folder
    if source.unpacked and (arrays := sorted((folder / source.unpacked).rglob("*.np[yz]"))):
        return arrays
    for file, known in source.files.items():
        if not known.matches(folder / file):
            _fetch_any(name, source, folder / file, known, progress)
    paths = [folder / file for file in source.files]
    return unpack_arrays(paths[0], folder / source.unpacked) if source.unpacked else paths


def unpack_arrays(archive: Path, folder: Path) -> list[Path]:
    """Unpack a folder from a tar or zip archive atomically, remove the archive, and return the unpacked .npy files."""
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=folder.name) as scratch:
            for name, stream in _members(archive):
                member = PurePosixPath(name)
                if stream is None or member.is_absolute() or not member.parts or ".." in member.parts:
                    expected = "regular files with relative paths and no `..`"
                    raise SmoothcertError(f"{archive}: expected {expected}, but got {name!r}; download it again.")
                path = Path(scratch) / member
                path.parent.mkdir(parents=True, exist_ok=True)
                with stream, path.open("xb") as out:
                    shutil.copyfileobj(stream, out)
            (Path(scratch) / folder.name).rename(folder)
    except (OSError, EOFError, ValueError, RuntimeError, tarfile.TarError, zipfile.BadZipFile, zlib.error) as error:
        raise SmoothcertError(
            f"{archive} cannot be unpacked ({first_line(error)}); remove it and download it again."
        ) from error
    archive.unlink()
    return sorted(folder.rglob("*.npy"))


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    """Yield the name and content of each member except folders; a member that is not a regular file has no content."""
    if archive.suffix == ".zip":
        check_members(archive)
        with zipfile.ZipFile(archive) as file:
            yield from ((member.filename, file.open(member)) for member in file.infolist() if not member.is_dir())
    else:
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                if not member.isdir():
                    yield member.name, tar.extractfile(member) if member.isreg() else None


def _fetch_any(name: str, source: DownloadSource, path: Path, known: KnownFile, progress: OnBytes | None) -> None:
    failures = []
    for address in (start + path.name for start in source.addresses):
        try:
            return download(address, path, known, progress)
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            failures.append(f"{address}: {getattr(error, 'reason', None) or error}")
    raise SmoothcertError(
        f"{path.name} could not be downloaded ({'; '.join(failures)}). "
        f"On a machine with network access, download {', '.join(source.files)}, copy to {path.parent}, and run "
        f"`smoothcert data get {name}` again"
        + (f", or make a similar dataset with `smoothcert data make {name}`." if name in CORRUPTED else ".")
    )


def _receive(response: http.client.HTTPResponse) -> bytes:
    """Return the next bytes; if the connection breaks, raise HTTPException, since OSError may also be a disk error."""
    try:
        return response.read(1 << 18)
    except OSError as error:
        raise http.client.HTTPException(error.strerror or error) from error


def download(address: str, path: Path, known: KnownFile, progress: OnBytes | None = None) -> None:
    """Download one file; it appears at `path` only when it is complete, with the expected size and checksum."""
    digest, name = hashlib.new(known.algorithm, usedforsecurity=False), known.algorithm.upper().replace("SHA", "SHA-")
    with urllib.request.urlopen(address, timeout=30) as response, replacing(path) as part, part.open("wb") as out:
        if address.startswith("https:") and not response.url.startswith("https:"):
            raise urllib.error.URLError(f"it redirects to {response.url}, which is not encrypted")
        received = 0
        while block := _receive(response):
            received += len(block)
            if received > known.size:
                raise SmoothcertError(f"{address}: expected a file of {known.size:,} bytes, but got more.")
            out.write(block)
            digest.update(block)
            if progress:
                progress(path.name, received, known.size)
        if received < known.size:
            raise http.client.IncompleteRead(b"", known.size - received)
        if (got := digest.hexdigest()) != known.checksum:
            raise SmoothcertError(f"{address}: expected a file with {name} {known.checksum}, but got {got}.")
