"""From results files on corrupted images to networks: which files are one's, joined, with its clean images beside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.dataset_names import CORRUPTIONS, canonical_name
from smoothcert.errors import SmoothcertError
from smoothcert.report.corrupted.files import File, part_of, read_file
from smoothcert.report.corrupted.network_results import CorruptedResults, Part


def read_corrupted(paths: Iterable[str | Path], **given: Any) -> list[CorruptedResults]:
    """Read results files of corrupted images, one network's being those of one folder, set, weights, noise level and n.

    Several files of one corruption, shards say, are joined. The network's certificates of the clean images, in a folder
    of the same name, are kept beside them; `given` says the noise level and the data set of files that do not.
    """
    files = [read_file(Path(path), given) for path in paths]
    clean = [file for file in files if not file.parts]
    networks: dict[tuple[Any, ...], list[File]] = {}
    for file in files:
        if file.parts:
            networks.setdefault(file.network, []).append(file)
    return _tell_apart([(group[0].home.name, _join(group, clean)) for group in networks.values()])


def _join(group: Sequence[File], clean: Sequence[File]) -> CorruptedResults:
    first, entry = group[0], group[0].entry
    places = dict.fromkeys(place for file in group for place in file.parts)
    parts = {place: _union([file.parts[place] for file in group if place in file.parts]) for place in places}
    found = [file.entry.results for file in clean if file.is_beside(first)]
    return CorruptedResults(
        name=entry.name,
        dataset=first.dataset,
        sigma=entry.sigma,
        method=entry.method,
        n=entry.n,
        suite=first.suite or _suite(parts, first.dataset),
        parts=parts,
        clean=_union([part_of(results, results.idx) for results in found]) if found else None,
        protocol=entry.protocol,
    )


def _union(parts: Sequence[Part]) -> Part:
    """Join parts of one set; of an image that several have, the part with the most images counts."""
    largest = sorted(parts, key=lambda part: -len(part.images))
    images, places = np.unique(np.concatenate([part.images for part in largest]), return_index=True)
    radius, correct = (np.concatenate([getattr(part, name) for part in largest]) for name in ("radius", "correct"))
    return Part(images, radius[places], correct[places])


def _suite(parts: Mapping[tuple[str, int], Part], dataset: str | None) -> str:
    """Return the set of corruptions that has these: by name, else by data set, else by severity."""
    names = {corruption for corruption, _ in parts}
    fitting = [suite for suite, known in CORRUPTIONS.items() if names <= set(known)]
    if not fitting:
        raise SmoothcertError(f"No one set has all of the corruptions {', '.join(sorted(names))}.")
    told = canonical_name(dataset or "").removesuffix("-c") + "-c"
    if told in fitting:
        return told
    return fitting[-1] if any(severity > 1 for _, severity in parts) else fitting[0]


def _tell_apart(found: Sequence[tuple[str, CorruptedResults]]) -> list[CorruptedResults]:
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
