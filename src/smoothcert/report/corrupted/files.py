"""A results file on corrupted images: which network, corruption and severities its rows are of.

A file holds one corruption. Ours say in their sidecar which rows belong to which severity; published ones are told by
their names: a folder a method, in it `fog.tsv` with the rows of all severities, `fog-3.tsv` or `fog_severity_3.tsv`
with those of one, or `3/fog.tsv`; or the methods' folders are in one of a severity, as in `severity_3/cat_rs/fog.tsv`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.dataset_names import CORRUPTIONS
from smoothcert.errors import SmoothcertError
from smoothcert.report.corrupted.network_results import Part
from smoothcert.report.tables.table import Entry, describe
from smoothcert.results.naming import sidecar_path
from smoothcert.results.reader import read_results
from smoothcert.results.records import Results
from smoothcert.results.sidecar import read_sidecar
from smoothcert.statistics import metrics

_ROWS_A_SEVERITY = 10_000  # in the published arrays
_NAMES = sorted({name for names in CORRUPTIONS.values() for name in names})
_LEVEL = r"(?:s|sev|severity)?[-_]?([1-5])"
_FILE = re.compile(rf"({'|'.join(_NAMES)})(?:[-_]?{_LEVEL})?")
_CLEAN = ("identity", "clean")


@dataclass(frozen=True)
class File:
    """A results file: the folder its network is told by, what it says of itself, and its rows; clean if no part.

    `each` is how many rows a severity has in the data.
    """

    home: Path
    entry: Entry
    dataset: str | None
    parts: Mapping[tuple[str, int], Part]
    suite: str | None = None
    each: int = _ROWS_A_SEVERITY

    @property
    def weights(self) -> str | None:
        """The hash of the network, where the file tells it: published ones do not."""
        model: Mapping[str, Any] = self.entry.results.about.get("settings", {}).get("model", {})
        return model.get("sha256") or model.get("weights")

    @property
    def protocol(self) -> tuple[float | None, str, int | None]:
        """How it was certified."""
        return self.entry.sigma, self.entry.protocol, self.entry.n

    @property
    def network(self) -> tuple[Any, ...]:
        """What the files of one network, certified in one way, have in common."""
        return self.home, self.dataset, self.weights, self.protocol

    def is_beside(self, other: File) -> bool:
        """Whether clean images are those of a file, by one network as far as the two tell, by the same protocol."""
        results, corrupted = self.entry.results, other.entry.results
        _, here, there = np.intersect1d(results.idx, corrupted.idx % other.each, return_indices=True)
        return (
            np.array_equal(results.label[here], corrupted.label[there])  # else a sample that counts its own rows
            and (None in (self.weights, other.weights) or self.weights == other.weights)
            and (self.home.name, self.protocol) == (other.home.name, other.protocol)
            and self.dataset in (other.dataset, (other.dataset or "").removesuffix("-c"))
        )


def read_file(path: Path, given: Mapping[str, Any]) -> File:
    """Read a results file; `given` says the noise level and the data set of one that does not."""
    results, (home, level) = read_results(path), _place_of(path)
    if results.about:
        entry = describe(results)
        dataset, corruption = _tell(entry.dataset or "")
        if not corruption:
            return File(home, entry, dataset or None, {})
        data = results.about["settings"]["data"]
        each, suite = data["rows"] // data["severities"], "mnist-c" if data["severities"] == 1 else "cifar10-c"
        return File(home, entry, dataset, _split(results, corruption, each), suite, each)
    # A published file: the method is its folder's name.
    entry, parts = describe(replace(results, name=home.name), **given), _published_parts(results)
    if level and len(parts) == 1:
        parts = {(corruption, level): part for (corruption, _), part in parts.items()}
    return File(home, entry, given.get("dataset"), parts)


def home_of(path: Path) -> Path:
    """Return the folder of a network: where a published one has folders of severities, below or above it, without."""
    return _place_of(path)[0]


def is_corrupted(path: Path) -> bool:
    """Whether a results file is of corrupted images, by its sidecar or, where it has none, by its name."""
    sidecar = sidecar_path(path)
    if sidecar.is_file():
        _, corruption = _tell(read_sidecar(sidecar).get("settings", {}).get("data", {}).get("name", ""))
        return bool(corruption)
    return _FILE.fullmatch(path.name.removesuffix(".gz").removesuffix(".tsv")) is not None


def part_of(results: Results, images: NDArray[np.int64], chosen: Any = slice(None)) -> Part:
    """Return rows as a part, by the images that they are."""
    radius = metrics.robust_radius(results.radius, results.correct)
    return Part(images[chosen], radius[chosen], results.correct[chosen])


def _tell(name: str) -> tuple[str, str]:
    """Return the data set and the corruption, empty if there is none, of images by their name."""
    dataset, _, corruption = name.rpartition("/")
    return (dataset or name), corruption if dataset and corruption not in _CLEAN else ""


def _place_of(path: Path) -> tuple[Path, int | None]:
    """Return the folder of a network, and the severity that a published file's folders tell."""
    folder = path.absolute().parent  # `.` has no name
    if sidecar_path(path).is_file():
        return folder, None
    for named, home in ((folder, folder.parent), (folder.parent, folder.parent.parent / folder.name)):
        if level := re.fullmatch(_LEVEL, named.name):
            return home, int(level[1])
    return folder, None


def _published_parts(results: Results) -> dict[tuple[str, int], Part]:
    told = _FILE.fullmatch(results.name)
    if told is None:
        if results.name in _CLEAN:
            return {}
        raise SmoothcertError(
            f"{results.name} is named after no corruption, as fog.tsv is; known are {', '.join(_NAMES)}."
        )
    if results.idx.max() >= 5 * _ROWS_A_SEVERITY:
        raise SmoothcertError(f"{results.name}: row {results.idx.max()} is beyond five severities of 10,000 rows.")
    if told[2]:
        return {(told[1], int(told[2])): part_of(results, results.idx % _ROWS_A_SEVERITY)}
    return _split(results, told[1], _ROWS_A_SEVERITY)


def _split(results: Results, corruption: str, each: int) -> dict[tuple[str, int], Part]:
    levels, images = results.idx // each + 1, results.idx % each
    return {(corruption, int(level)): part_of(results, images, levels == level) for level in np.unique(levels)}
