"""Downloading datasets from their official addresses, verified by their published checksums."""

from __future__ import annotations

import hashlib
import http.client
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothcert.data.files import data_dir
from smoothcert.data.registry import missing
from smoothcert.dataset_names import CORRUPTED, canonical_name
from smoothcert.errors import SmoothcertError, UsageError, unknown_name
from smoothcert.runtime.atomic_files import file_hash, replacing

Progress = Callable[[str, int, int | None], None]
"""Called with the file name, the bytes received so far, and the total if the server reports it."""


@dataclass(frozen=True)
class DownloadSource:
    """Addresses to try in turn, the folder for the files, and the MD5 of each file.

    If `unpacked` is given, the only file is an archive that is unpacked to a folder of that name and then removed.
    """

    addresses: tuple[str, ...]
    folder: str
    files: Mapping[str, str]
    unpacked: str = ""


def _zenodo(record: int, archive: str, md5: str) -> DownloadSource:
    address = f"https://zenodo.org/records/{record}/files/"
    return DownloadSource((address,), "", {archive: md5}, unpacked=Path(archive).stem)


_CIFAR = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
SOURCES = {
    "mnist": DownloadSource(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        "mnist",
        {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion_mnist": DownloadSource(
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        "fashion_mnist",
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    "cifar10": DownloadSource(_CIFAR, "", {"cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"}),
    "cifar100": DownloadSource(_CIFAR, "", {"cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85"}),
    "cifar10-c": _zenodo(2535967, "CIFAR-10-C.tar", "56bf5dcef84df0e2308c6dcbcbbd8499"),
    "cifar100-c": _zenodo(3555552, "CIFAR-100-C.tar", "11f0ed0f1191edbf9fa23466ae6021d3"),
    "mnist-c": _zenodo(3239543, "mnist_c.zip", "4b34b33045869ee6d424616cd3a65da3"),
}


def fetch_dataset(
    name: str,
    root: str | Path | None = None,
    progress: Progress | None = None,
    sources: Mapping[str, DownloadSource] = SOURCES,
) -> list[Path]:
    """Download the missing files of a dataset, verify them, and return the paths of all files."""
    name = canonical_name(name)
    if name == "mnist-mini":
        raise UsageError("mnist-mini is part of the package; there is nothing to download.")
    if name == "imagenet":
        raise UsageError(f"ImageNet is available to registered users only. {missing('imagenet', data_dir(root))}")
    if name not in sources and name in CORRUPTED:
        raise UsageError(f"{name} was never published; make it with `smoothcert data make {name}`.")
    if name not in sources:
        raise unknown_name("dataset", name, sources)
    source, folder = sources[name], data_dir(root) / sources[name].folder
    if source.unpacked and (arrays := sorted((folder / source.unpacked).rglob("*.np[yz]"))):
        return arrays
    for file, md5 in source.files.items():
        if not ((folder / file).is_file() and file_hash(folder / file, "md5") == md5):
            _fetch_any(name, source, folder / file, md5, progress)
    paths = [folder / file for file in source.files]
    return unpack_arrays(paths[0], folder / source.unpacked) if source.unpacked else paths


def unpack_arrays(archive: Path, folder: Path) -> list[Path]:
    """Unpack a folder from a tar or zip archive atomically, remove the archive, and return the arrays in the folder."""
    # Python 3.11.2 (Debian 12) has no extraction filters yet; the archive's checksum has been verified.
    options: dict[str, Any] = {"filter": "data"} if archive.suffix == ".tar" and hasattr(tarfile, "data_filter") else {}
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=folder.name) as scratch:
            shutil.unpack_archive(archive, scratch, **options)
            (Path(scratch) / folder.name).rename(folder)
    except (OSError, EOFError, shutil.ReadError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise SmoothcertError(f"{archive} cannot be unpacked ({error}); remove it and download it again.") from error
    archive.unlink()
    return sorted(folder.rglob("*.npy"))


def _fetch_any(name: str, source: DownloadSource, path: Path, md5: str, progress: Progress | None) -> None:
    failures = []
    for address in (start + path.name for start in source.addresses):
        try:
            return download(address, path, md5, progress)
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            failures.append(f"{address}: {getattr(error, 'reason', None) or error}")
    raise SmoothcertError(
        f"{path.name} could not be downloaded ({'; '.join(failures)}). "
        f"Download it on a machine with network access and put {', '.join(source.files)} into {path.parent}"
        + (f", or make a similar dataset with `smoothcert data make {name}`." if name in CORRUPTED else ".")
    )


def _receive(response: http.client.HTTPResponse) -> bytes:
    """Return the next bytes; raise a broken connection as a network error, so that it is not taken for a full disk."""
    try:
        return response.read(1 << 18)
    except OSError as error:
        raise http.client.HTTPException(error.strerror or error) from error


def download(address: str, path: Path, md5: str, progress: Progress | None = None) -> None:
    """Download one file; it appears at `path` only when it is complete and its MD5 is correct."""
    digest = hashlib.md5(usedforsecurity=False)
    with urllib.request.urlopen(address, timeout=30) as response, replacing(path) as part, part.open("wb") as out:
        length = response.headers.get("Content-Length")
        total, received = int(length) if length else None, 0
        while block := _receive(response):
            out.write(block)
            digest.update(block)
            received += len(block)
            if progress:
                progress(path.name, received, total)
        if total is not None and received < total:
            raise http.client.IncompleteRead(b"", total - received)
        if digest.hexdigest() != md5:
            raise SmoothcertError(f"{address}: expected a file with MD5 {md5}, but got {digest.hexdigest()}.")
