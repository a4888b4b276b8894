"""Fetching data sets from their official addresses, checked against the published checksums."""

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
"""Called with a file's name, the bytes received so far, and the total where the server tells it."""


@dataclass(frozen=True)
class Source:
    """Where a data set is served: addresses to try in turn, the folder its files go to, name and MD5 of each.

    An archive that is `unpacked` gives its arrays to a folder of that name and is then removed.
    """

    addresses: tuple[str, ...]
    folder: str
    files: Mapping[str, str]
    unpacked: str = ""


_CIFAR = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
SOURCES = {
    "mnist": Source(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        "mnist",
        {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion_mnist": Source(
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        "fashion_mnist",
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    "cifar10": Source(_CIFAR, "", {"cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"}),
    "cifar100": Source(_CIFAR, "", {"cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85"}),
    "cifar10-c": Source(
        ("https://zenodo.org/records/2535967/files/",),
        "",
        {"CIFAR-10-C.tar": "56bf5dcef84df0e2308c6dcbcbbd8499"},
        unpacked="CIFAR-10-C",
    ),
    "cifar100-c": Source(
        ("https://zenodo.org/records/3555552/files/",),
        "",
        {"CIFAR-100-C.tar": "11f0ed0f1191edbf9fa23466ae6021d3"},
        unpacked="CIFAR-100-C",
    ),
    "mnist-c": Source(
        ("https://zenodo.org/records/3239543/files/",),
        "",
        {"mnist_c.zip": "4b34b33045869ee6d424616cd3a65da3"},
        unpacked="mnist_c",
    ),
}


def fetch_dataset(
    name: str,
    root: str | Path | None = None,
    progress: Progress | None = None,
    sources: Mapping[str, Source] = SOURCES,
) -> list[Path]:
    """Download what is not there yet, check it, and return the files' paths."""
    name = canonical_name(name)
    if name == "mnist-mini":
        raise UsageError("mnist-mini is part of the package; there is nothing to fetch.")
    if name == "imagenet":
        raise UsageError(f"ImageNet is handed out to registered users only. {missing('imagenet', data_dir(root))}")
    if name not in sources and name in CORRUPTED:
        raise UsageError(f"{name} was never published; make it with `smoothcert data make {name}`.")
    if name not in sources:
        raise unknown_name("data set", name, sources)
    source, folder = sources[name], data_dir(root) / sources[name].folder
    if source.unpacked and (there := sorted((folder / source.unpacked).rglob("*.np[yz]"))):
        return there
    for file, md5 in source.files.items():
        if not ((folder / file).is_file() and file_hash(folder / file, "md5") == md5):
            _fetch_any([address + file for address in source.addresses], folder / file, md5, progress, name, folder)
    paths = [folder / file for file in source.files]
    return unpack_arrays(paths[0], folder / source.unpacked) if source.unpacked else paths


def unpack_arrays(archive: Path, folder: Path) -> list[Path]:
    """Take a folder out of a tar or zip archive, whole or not at all, remove the archive, and return its arrays."""
    # Debian 12's Python, 3.11.2, does not know the filter yet; the archive's checksum was found right.
    options: dict[str, Any] = {"filter": "data"} if archive.suffix == ".tar" and hasattr(tarfile, "data_filter") else {}
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=folder.name) as scratch:
            shutil.unpack_archive(archive, scratch, **options)
            (Path(scratch) / folder.name).rename(folder)
    except (OSError, EOFError, shutil.ReadError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise SmoothcertError(f"{archive} cannot be unpacked ({error}); remove it and fetch it again.") from error
    archive.unlink()
    return sorted(folder.rglob("*.npy"))


def _fetch_any(addresses: list[str], path: Path, md5: str, progress: Progress | None, name: str, folder: Path) -> None:
    failures = []
    for address in addresses:
        try:
            return download(address, path, md5, progress)
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            failures.append(f"{address}: {getattr(error, 'reason', None) or error}")
    files = ", ".join(SOURCES[name].files if name in SOURCES else [path.name])
    raise SmoothcertError(
        f"{path.name} could not be fetched ({'; '.join(failures)}). "
        f"Fetch it where there is a network and put {files} into {folder}"
        + (f", or make its like with `smoothcert data make {name}`." if name in CORRUPTED else ".")
    )


def _receive(response: http.client.HTTPResponse) -> bytes:
    """Return the next bytes; a connection that breaks is the network's failure, not one of the file being written."""
    try:
        return response.read(1 << 18)
    except OSError as error:
        raise http.client.HTTPException(error.strerror or error) from error


def download(address: str, path: Path, md5: str, progress: Progress | None = None) -> None:
    """Fetch one file; it appears under its name only when whole and right."""
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
            raise SmoothcertError(f"{address} gave a file of MD5 {digest.hexdigest()}; the published one is {md5}.")
