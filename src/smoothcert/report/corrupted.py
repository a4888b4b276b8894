"""Reading certificates on corrupted images: one network on every corruption of a set.

A file holds one corruption. Ours say in their sidecar which rows belong to which severity; published ones are told by
their names: a folder a method, in it `fog.tsv` with the rows of all severities, `fog-3.tsv` or `fog_severity_3.tsv`
with those of one, or `3/fog.tsv`; or the methods' folders are in one of a severity, as in `severity_3/cat_rs/fog.tsv`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert import metrics
from smoothcert.errors import SmoothcertError
from smoothcert.names import CORRUPTIONS
from smoothcert.report.table import Entry, describe
from smoothcert.results import Results, read_results, read_sidecar, sidecar_path

_ROWS_A_SEVERITY = 10_000  # in the published arrays
_NAMES = sorted({name for names in CORRUPTIONS.values() for name in names})
_LEVEL = r"(?:s|sev|severity)?[-_]?([1-5])"
_FILE = re.compile(rf"({'|'.join(_NAMES)})(?:[-_]?{_LEVEL})?")
_LEVEL_FOLDER = re.compile(_LEVEL)
_CLEAN = ("identity", "clean")


@dataclass(frozen=True)
class Part:
    """One corruption at one severity: which image each row is, its robust radius, and whether it is right."""

    images: NDArray[np.int64]
    radius: NDArray[np.float64]
    correct: NDArray[np.bool_]


@dataclass(frozen=True)
class CorruptedResults:
    """Certificates of one network on the corruptions of a set, by corruption and severity.

    `suite` is the published set whose corruptions these are; a mean counts those alone, unless none of them is there.
    """

    name: str
    dataset: str | None
    sigma: float | None
    method: str | None
    n: int | None
    suite: str
    parts: Mapping[tuple[str, int], Part]
    clean: Part | None = None
    protocol: str = ""  # what sets it apart from CERTIFY as published

    @property
    def corruptions(self) -> list[str]:
        """The corruptions of the mean, in the order of their set: those that are there, else those held out."""
        there = {corruption for corruption, _ in self.parts}
        return [name for name in CORRUPTIONS[self.suite] if name in there] or sorted(there)

    @property
    def held_out(self) -> list[str]:
        """The corruptions that are there beside those of the mean."""
        return sorted({corruption for corruption, _ in self.parts}.difference(self.corruptions))

    @property
    def missing(self) -> list[str]:
        """The corruptions of the set that are not there, where some are."""
        known = CORRUPTIONS[self.suite]
        return [name for name in known if name not in self.corruptions] if set(self.corruptions) & set(known) else []

    @property
    def severities(self) -> list[int]:
        """The severities at which corruptions of the mean are there."""
        return sorted({severity for corruption, severity in self.parts if corruption in self.corruptions})

    @property
    def images(self) -> NDArray[np.int64]:
        """The images that appear at all."""
        return np.unique(np.concatenate([part.images for part in self.parts.values()]))

    @property
    def uneven(self) -> list[str]:
        """The corruptions that lack some of the images that others have, at one severity or more."""
        levels = {name: {level for other, level in self.parts if other == name} for name in self.corruptions}
        return [
            name
            for name in self.corruptions
            if levels[name] != set(self.severities)
            or any(len(self.parts[name, level].images) < len(self.images) for level in levels[name])
        ]


@dataclass(frozen=True)
class _File:
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
    def network(self) -> tuple[Path, str | None, str | None, float | None, str, int | None]:
        return self.home, self.dataset, self.weights, self.entry.sigma, self.entry.protocol, self.entry.n

    @property
    def weights(self) -> str | None:
        """The hash of the network, where the file tells it: published ones do not."""
        model: Mapping[str, Any] = self.entry.results.about.get("settings", {}).get("model", {})
        return model.get("sha256")

    def is_beside(self, other: _File) -> bool:
        """Whether clean images are those of a file, by one network as far as the two tell, by the same protocol."""
        results, corrupted = self.entry.results, other.entry.results
        _, here, there = np.intersect1d(results.idx, corrupted.idx % other.each, return_indices=True)
        same = np.array_equal(results.label[here], corrupted.label[there])  # else a sample that counts its own rows
        same &= None in (self.weights, other.weights) or self.weights == other.weights
        return same and self.home.name == other.home.name and self.network[3:] == other.network[3:]


def read_corrupted(paths: Iterable[str | Path], **given: Any) -> list[CorruptedResults]:
    """Read results files of corrupted images, one network's being those of one folder, set, weights, noise level and n.

    Several files of one corruption, shards say, are joined. The network's certificates of the clean images, in a folder
    of the same name, are kept beside them; `given` says the noise level and the data set of files that do not.
    """
    files = [_read(Path(path), given) for path in paths]
    corrupted: dict[tuple[Any, ...], list[_File]] = {}
    for file in files:
        if file.parts:
            corrupted.setdefault(file.network, []).append(file)
    clean = [file for file in files if not file.parts]
    return _tell_apart([(group[0].home.name, _join(group, clean)) for group in corrupted.values()])


def _tell_apart(found: list[tuple[str, CorruptedResults]]) -> list[CorruptedResults]:
    """Give networks of one method, such as seeds, the names of their folders, and a number where these are the same."""

    def key(entry: CorruptedResults) -> tuple[Any, ...]:
        return entry.name, entry.dataset, entry.sigma, entry.n

    seen = Counter(key(entry) for _, entry in found)
    named = [replace(entry, name=f"{entry.name} ({home})") if seen[key(entry)] > 1 else entry for home, entry in found]
    repeated, before = Counter(map(key, named)), Counter[tuple[Any, ...]]()
    entries = []
    for entry in named:
        before[key(entry)] += 1
        number = f" {before[key(entry)]}" if repeated[key(entry)] > 1 else ""
        entries.append(replace(entry, name=entry.name + number))
    return entries


def _read(path: Path, given: Mapping[str, Any]) -> _File:
    results, home = read_results(path), home_of(path)
    if results.about:
        entry = describe(results)
        dataset, _, corruption = (entry.dataset or "").rpartition("/")
        if not dataset or corruption in _CLEAN:
            return _File(home, entry, dataset or entry.dataset, {})
        data = results.about["settings"]["data"]
        each, suite = data["rows"] // data["severities"], "mnist-c" if data["severities"] == 1 else "cifar10-c"
        return _File(home, entry, dataset, _split(results, corruption, each), suite, each)
    # A published file: the method is its folder's name.
    entry = describe(replace(results, name=home.name), **given)
    parts, level = _published_parts(results), _level_of(path)
    if level and len(parts) == 1:
        parts = {(corruption, level): part for (corruption, _), part in parts.items()}
    return _File(home, entry, given.get("dataset"), parts)


def home_of(path: Path) -> Path:
    """Return the folder of a network: where a published one has folders of severities, below or above it, without."""
    folder = path.absolute().parent  # `.` has no name
    if sidecar_path(path).is_file():
        return folder
    if _LEVEL_FOLDER.fullmatch(folder.name):
        return folder.parent
    return folder.parent.parent / folder.name if _LEVEL_FOLDER.fullmatch(folder.parent.name) else folder


def _level_of(path: Path) -> int | None:
    """Return the severity that a published file's folders tell."""
    told = (_LEVEL_FOLDER.fullmatch(folder.name) for folder in path.absolute().parents[:2])
    return next((int(level[1]) for level in told if level), None)


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
        return {(told[1], int(told[2])): _part(results, results.idx % _ROWS_A_SEVERITY)}
    return _split(results, told[1], _ROWS_A_SEVERITY)


def _split(results: Results, corruption: str, each: int) -> dict[tuple[str, int], Part]:
    levels, images = results.idx // each + 1, results.idx % each
    return {(corruption, int(level)): _part(results, images, levels == level) for level in np.unique(levels)}


def _part(results: Results, images: NDArray[np.int64], chosen: Any = slice(None)) -> Part:
    radius = metrics.robust_radius(results.radius, results.correct)
    return Part(images[chosen], radius[chosen], results.correct[chosen])


def _join(group: list[_File], others: list[_File]) -> CorruptedResults:
    first = group[0]
    places = dict.fromkeys(place for file in group for place in file.parts)
    parts = {place: _union([file.parts[place] for file in group if place in file.parts]) for place in places}
    bases = (first.dataset, (first.dataset or "").removesuffix("-c"))
    beside = [
        _part(file.entry.results, file.entry.results.idx)
        for file in others
        if file.is_beside(first) and file.dataset in bases
    ]
    entry, suite, clean = first.entry, first.suite or _suite(parts), _union(beside) if beside else None
    about = (entry.name, first.dataset, entry.sigma, entry.method, entry.n)
    return CorruptedResults(*about, suite, parts, clean, entry.protocol)


def _union(parts: list[Part]) -> Part:
    """Join parts of one set; of an image that several have, the part with the most images counts."""
    largest = sorted(parts, key=lambda part: -len(part.images))
    images, places = np.unique(np.concatenate([part.images for part in largest]), return_index=True)
    radius, correct = (np.concatenate([getattr(part, name) for part in largest]) for name in ("radius", "correct"))
    return Part(images, radius[places], correct[places])


def _suite(parts: Mapping[tuple[str, int], Part]) -> str:
    """Return the set of corruptions that has these: by their names, or, where both do, by the severities."""
    names = {corruption for corruption, _ in parts}
    fitting = [suite for suite, known in CORRUPTIONS.items() if names <= set(known)]
    if not fitting:
        raise SmoothcertError(f"No one set has all of the corruptions {', '.join(sorted(names))}.")
    return fitting[-1] if any(severity > 1 for _, severity in parts) else fitting[0]


def is_corrupted(path: Path) -> bool:
    """Whether a results file is of corrupted images, by its sidecar or, where it has none, by its name."""
    sidecar = sidecar_path(path)
    if sidecar.is_file():
        _, slash, name = read_sidecar(sidecar).get("settings", {}).get("data", {}).get("name", "").rpartition("/")
        return bool(slash) and name not in _CLEAN
    return _FILE.fullmatch(path.name.removesuffix(".gz").removesuffix(".tsv")) is not None
