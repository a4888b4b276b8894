"""Make corrupted datasets. Each image has its own random numbers, so no corrupted image depends on other images."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product, repeat
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.corruptions.suites import Suite, suite_for
from smoothcert.data.image_data import ImageData
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.runtime.atomic_files import replacing, write_text
from smoothcert.runtime.typed_files import read_json
from smoothcert.statistics.bounds import check_count, check_seed


class _MadeFrom(TypedDict):
    name: str
    sha256: str


class _About(TypedDict, total=False):
    """The fields of about.json whose types are checked."""

    made_from: _MadeFrom
    classes: list[str]


Bytes = NDArray[np.uint8]
ABOUT = "about.json"
_CHUNK = 250


def corrupt(images: Bytes, name: str, severity: int = 1, seed: int = 0, first: int = 0) -> Bytes:
    """Corrupt uint8 images [count, height, width, channels]; `first` is the index of the first image in its dataset.

    The random numbers of an image depend only on the seed, the corruption, the severity and the image's index.

    >>> gray = np.full((2, 28, 28, 1), 100, dtype=np.uint8)
    >>> corrupt(gray, "inverse")[0, 0, 0].tolist(), corrupt(gray, "stripe")[1, 0, [0, 14]].ravel().tolist()
    ([155], [155, 100])
    """
    suite = suite_for(images.shape[3])
    function, settings = suite.find(name)
    if not 1 <= severity <= len(settings):
        raise UsageError(f"Expected the severity of {name} to be from 1 to {len(settings)}, but got {severity}.")
    out = np.empty_like(images)
    for place, image in enumerate(images):
        random = np.random.default_rng((seed, zlib.crc32(name.encode()), severity, first + place))
        values = 255 * np.clip(function(image / 255, random, *settings[severity - 1]), 0, 1)
        out[place] = np.rint(values) if suite.rounded else np.floor(values + 1e-6)
    return out


def make_corrupted(
    data: ImageData,
    folder: Path,
    names: Sequence[str] = (),
    *,
    seed: int = 0,
    workers: int | None = None,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> list[Path]:
    """Write corrupted copies of a dataset into a folder, in the layout of CIFAR-10-C, and return the new files.

    The file of a corruption contains all images at severity 1, then all at severity 2, and so on; `labels.npy` contains
    their labels. Without `names`, all corruptions of the suite are made. Existing files are kept; they must have been
    made from the same images with the same seed.
    """
    check_seed(seed)
    if workers is not None:
        check_count("workers", workers)
    suite = suite_for(data.shape[0])
    wanted = list(dict.fromkeys(names or suite.counted))
    left = [name for name in wanted if not (folder / f"{name}.npy").is_file()]
    for name in left:
        _try(data, name)  # a missing dependency should be reported before hours of work
    _claim(data, folder, suite, seed)
    labels = np.tile(data.labels.numpy(), suite.severities).astype(np.uint8 if len(data.classes) <= 256 else np.int64)
    if not (folder / "labels.npy").is_file():
        with replacing(folder / "labels.npy") as part, part.open("wb") as file:
            np.save(file, labels)
    severities, starts = zip(*product(range(1, suite.severities + 1), range(0, len(data), _CHUNK)), strict=True)
    with ProcessPoolExecutor(workers or os.cpu_count(), initializer=_end_with_parent) as pool:
        for name in left:
            with replacing(folder / f"{name}.npy") as part:
                shape = (len(labels), *data.shape[1:], data.shape[0])
                array = np.lib.format.open_memmap(part, mode="w+", dtype=np.uint8, shape=shape)
                chunks = (_pixels(data, first) for first in starts)
                made = pool.map(corrupt, chunks, repeat(name), severities, repeat(seed), starts)
                row = 0
                for done, images in enumerate(made, 1):
                    array[row : row + len(images)] = images
                    row += len(images)
                    if on_progress:
                        on_progress(name, done, len(starts))
                array.flush()
                del array
    return [folder / f"{name}.npy" for name in left]


def _end_with_parent() -> None:
    """End this worker when its parent process is killed."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def unavailable_corruptions(data: ImageData) -> dict[str, str]:
    """Return the corruptions of the suite that cannot be made on this machine, with the reasons."""
    reasons = {}
    for name in suite_for(data.shape[0]).counted:
        try:
            _try(data, name)
        except SmoothcertError as error:
            reasons[name] = str(error)
    return reasons


def _try(data: ImageData, name: str) -> None:
    corrupt(_pixels(data, 0)[:1], name)


def _pixels(data: ImageData, first: int) -> Bytes:
    chosen = data.subset(range(first, min(first + _CHUNK, len(data)))).images
    return np.asarray(chosen).transpose(0, 2, 3, 1)


def _claim(data: ImageData, folder: Path, suite: Suite, seed: int) -> None:
    """Record in the folder how its files are made; raise if it already contains files that were made differently."""
    about = {
        "made_from": {"name": data.name, "split": data.split, "sha256": data.fingerprint},
        "classes": list(data.classes),
        "severities": suite.severities,
        "seed": seed,
    }
    if before := read_about(folder):
        if before != about:
            raise UsageError(f"{folder} was made with different images or a different seed; choose another `folder`.")
    elif folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} contains files that were not made by smoothcert; choose another `folder`.")
    else:
        write_text(folder / ABOUT, json.dumps(about, indent=2) + "\n")


def read_about(folder: Path) -> dict[str, Any]:
    """Return the content of a folder's `about.json`; it is empty if smoothcert did not make the folder."""
    path = folder / ABOUT
    about: dict[str, Any] = read_json(path, _About) if path.is_file() else {}
    return about
