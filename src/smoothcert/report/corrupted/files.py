"""Read a results file on corrupted images, and find the network, corruption and severities of its rows.

A file contains one corruption. For files written by smoothcert, the sidecar states the numbers of severities and rows.
Published files are recognized by name, with one folder per method: `fog.tsv` contains all severities; `fog-3.tsv`,
`fog_severity_3.tsv` and `3/fog.tsv` contain one. The method's folder may also be inside the severity's folder, as in
`severity_3/cat_rs/fog.tsv`.
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
from smoothcert.report.corrupted.results import CorruptionPart
from smoothcert.report.results_reader import ResultsReader
from smoothcert.report.tables.entries import Entry, describe
from smoothcert.results.naming import sidecar_path
from smoothcert.results.records import Results
from smoothcert.results.sidecar import read_sidecar
from smoothcert.statistics import metrics

_PUBLISHED_ROWS = 10_000  # per severity in the published arrays
_NAMES = sorted({name for names in CORRUPTIONS.values() for name in names})
_SEVERITY = r"(?:s|sev|severity)?[-_]?([1-5])"
_FILE = re.compile(rf"({'|'.join(_NAMES)})(?:[-_]?{_SEVERITY})?")
_CLEAN = ("identity", "clean")


@dataclass(frozen=True)
class CorruptedFile:
    """A results file with its rows split by corruption and severity; `parts` is empty for clean images."""

    folder: Path  # of the network; only the folder tells the networks of published files apart
    entry: Entry
    dataset: str | None
    parts: Mapping[tuple[str, int], CorruptionPart]
    suite: str | None = None
    rows: int = _PUBLISHED_ROWS  # images per severity in the dataset

    @property
    def weights(self) -> str | None:
        """Hash of the network, None for published files."""
        model: Mapping[str, Any] = self.entry.settings.get("model", {})
        return model.get("sha256") or model.get("weights")

    @property
    def settings(self) -> tuple[Any, ...]:
        """Noise level, protocol and n."""
        return self.entry.sigma, self.entry.protocol, self.entry.n

    @property
    def network(self) -> tuple[Any, ...]:
        """Key that is equal for all files of one network certified with the same settings."""
        return self.folder, self.dataset, self.weights, self.settings

    def is_clean_version_of(self, other: CorruptedFile) -> bool:
        """Return True if these results are for the same network, on the clean versions of the other file's images."""
        results, corrupted = self.entry.results, other.entry.results
        _, here, there = np.intersect1d(results.idx, corrupted.idx % other.rows, return_indices=True)
        return (
            np.array_equal(results.label[here], corrupted.label[there])  # subsets may renumber images
            and (None in (self.weights, other.weights) or self.weights == other.weights)
            and (self.folder.name, self.settings) == (other.folder.name, other.settings)
            and self.dataset in (other.dataset, (other.dataset or "").removesuffix("-c"))
        )


def read_file(path: Path, reader: ResultsReader) -> CorruptedFile:
    """Read a results file on corrupted or clean images."""
    folder, severity = folder_and_severity(path)
    results, given = reader.read(path, folder.name), reader.given
    if results.about:
        entry = describe(results)
        dataset, corruption = _split_name(entry.dataset or "")
        if not corruption:
            return CorruptedFile(folder, entry, dataset or None, {})
        data = entry.settings["data"]
        rows, suite = data["rows"] // data["severities"], "mnist-c" if data["severities"] == 1 else "cifar10-c"
        return CorruptedFile(folder, entry, dataset, _split_severities(results, corruption, rows), suite, rows)
    # Published files are named after the corruption; their folder is named after the method.
    entry, parts = describe(replace(results, name=folder.name), **given), _published_parts(results)
    if severity and len(parts) == 1:
        parts = {(corruption, severity): part for (corruption, _), part in parts.items()}
    return CorruptedFile(folder, entry, given.get("dataset"), parts)


def is_corrupted(path: Path) -> bool:
    """Return True if the sidecar or, without a sidecar, the file name says that the images are corrupted."""
    sidecar = sidecar_path(path)
    if sidecar.is_file():
        _, corruption = _split_name(read_sidecar(sidecar).get("settings", {}).get("data", {}).get("name", ""))
        return bool(corruption)
    return _FILE.fullmatch(path.name.removesuffix(".gz").removesuffix(".tsv")) is not None


def make_part(results: Results, images: NDArray[np.int64]) -> CorruptionPart:
    """Return all rows as a part; `images` contains the image index of every row."""
    return CorruptionPart(images, metrics.robust_radius(results.radius, results.correct), results.correct)


def _split_name(name: str) -> tuple[str, str]:
    """Split a name such as cifar10-c/fog into dataset and corruption; the corruption is empty for clean images."""
    dataset, _, corruption = name.rpartition("/")
    return (dataset or name), corruption if dataset and corruption not in _CLEAN else ""


def folder_and_severity(path: Path) -> tuple[Path, int | None]:
    """Return the folder that identifies a file's network, and the severity if the name of a folder states it."""
    folder = path.absolute().parent  # absolute, since the name of `.` is empty
    if sidecar_path(path).is_file():
        return folder, None
    for named, network in ((folder, folder.parent), (folder.parent, folder.parent.parent / folder.name)):
        if severity := re.fullmatch(_SEVERITY, named.name):
            return network, int(severity[1])
    return folder, None


def _published_parts(results: Results) -> dict[tuple[str, int], CorruptionPart]:
    match = _FILE.fullmatch(results.name)
    if match is None:
        if results.name in _CLEAN:
            return {}
        raise SmoothcertError(
            f"Expected {results.name} to be named after a corruption, like fog.tsv; known: {', '.join(_NAMES)}."
        )
    corruption, severity = match.groups()
    if results.idx.max() >= 5 * _PUBLISHED_ROWS:
        raise SmoothcertError(
            f"Expected {results.name} to have at most 5 severities of 10,000 images, but got image {results.idx.max()}."
        )
    if severity:
        return {(corruption, int(severity)): make_part(results, results.idx % _PUBLISHED_ROWS)}
    return _split_severities(results, corruption, _PUBLISHED_ROWS)


def _split_severities(results: Results, corruption: str, rows: int) -> dict[tuple[str, int], CorruptionPart]:
    levels, part = results.idx // rows + 1, make_part(results, results.idx % rows)
    return {(corruption, int(level)): part.only(levels == level) for level in np.unique(levels)}
