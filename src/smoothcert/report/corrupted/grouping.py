"""Group results files on corrupted images by network, and add each network's results on clean images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from smoothcert.dataset_names import CORRUPTIONS, canonical_name
from smoothcert.errors import SmoothcertError
from smoothcert.report.corrupted.files import CorruptedFile, make_part, read_file
from smoothcert.report.corrupted.results import CorruptedResults, CorruptionPart
from smoothcert.report.groups import grouped
from smoothcert.report.results_reader import ResultsReader


def read_corrupted(paths: Iterable[Path], reader: ResultsReader | None = None) -> list[CorruptedResults]:
    """Read results files on corrupted images, and on clean images, and combine the files of each network."""
    reader = reader or ResultsReader({})
    files = [read_file(path, reader) for path in paths]
    clean = [file for file in files if not file.parts]
    networks = grouped((file for file in files if file.parts), lambda file: file.network)
    return _make_names_unique([(members[0].folder.name, _join(members, clean)) for members in networks])


def _join(files: Sequence[CorruptedFile], clean: Sequence[CorruptedFile]) -> CorruptedResults:
    """Join the files of a network; several files of one corruption, such as shards, are merged."""
    first, entry = files[0], files[0].entry
    keys = dict.fromkeys(key for file in files for key in file.parts)
    parts = {key: _merge([file.parts[key] for file in files if key in file.parts]) for key in keys}
    clean_results = [file.entry.results for file in clean if file.is_clean_version_of(first)]
    return CorruptedResults(
        name=entry.name,
        dataset=first.dataset,
        sigma=entry.sigma,
        method=entry.method,
        n=entry.n,
        suite=first.suite or _find_suite(parts, first.dataset),
        parts=parts,
        clean=_merge([make_part(results, results.idx) for results in clean_results]) if clean_results else None,
        protocol=entry.protocol,
    )


def _merge(parts: Sequence[CorruptionPart]) -> CorruptionPart:
    """Merge parts; if several parts contain an image, keep its row from the largest of them."""
    largest = sorted(parts, key=lambda part: -len(part.images))
    columns = zip(*((part.images, part.radius, part.correct) for part in largest), strict=True)
    joined = CorruptionPart(*map(np.concatenate, columns))
    return joined.only(np.unique(joined.images, return_index=True)[1])


def _find_suite(parts: Mapping[tuple[str, int], CorruptionPart], dataset: str | None) -> str:
    """Return the suite (mnist-c or cifar10-c) that contains all corruptions; if both do, go by dataset or severity."""
    names = {corruption for corruption, _ in parts}
    matching = [suite for suite, known in CORRUPTIONS.items() if names <= set(known)]
    if not matching:
        suites, present = " nor ".join(CORRUPTIONS), ", ".join(sorted(names))
        raise SmoothcertError(
            f"Neither {suites} contains all of the corruptions {present}; report the benchmarks separately."
        )
    by_name = canonical_name(dataset or "").removesuffix("-c") + "-c"
    if by_name in matching:
        return by_name
    return matching[-1] if any(severity > 1 for _, severity in parts) else matching[0]


def _make_names_unique(networks: Sequence[tuple[str, CorruptedResults]]) -> list[CorruptedResults]:
    """Append the folder name to names that several networks share, and a number if the folder names are equal too."""
    keys = [(entry.name, entry.dataset, entry.sigma, entry.n) for _, entry in networks]
    places = [(folder, key) for (folder, _), key in zip(networks, keys, strict=True)]
    entries = []
    for i, (folder, entry) in enumerate(networks):
        name = f"{entry.name} ({folder})" if keys.count(keys[i]) > 1 else entry.name
        number = f" {places[: i + 1].count(places[i])}" if places.count(places[i]) > 1 else ""
        entries.append(replace(entry, name=name + number))
    return entries
