"""Results of one network on every corruption of a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.dataset_names import CORRUPTIONS
from smoothcert.report.tables.paper_numbers import method_rank


@dataclass(frozen=True)
class CorruptionPart:
    """Rows of one corruption at one severity: image index, radius (0 if wrong) and correctness of each row."""

    images: NDArray[np.int64]
    radius: NDArray[np.float64]
    correct: NDArray[np.bool_]

    def only(self, rows: NDArray[Any]) -> CorruptionPart:
        """Return the chosen rows."""
        return CorruptionPart(self.images[rows], self.radius[rows], self.correct[rows])


@dataclass(frozen=True)
class CorruptedResults:
    """Results of one network by corruption and severity."""

    name: str
    dataset: str | None
    sigma: float | None
    method: str | None
    n: int | None
    suite: str  # the published benchmark, "mnist-c" or "cifar10-c"
    parts: Mapping[tuple[str, int], CorruptionPart]
    clean: CorruptionPart | None = None
    protocol: str = ""  # differences from the published CERTIFY, empty if there are none

    @property
    def corruptions(self) -> list[str]:
        """Corruptions that count toward the mean: those of the suite, in its order, or else all of them."""
        present = {corruption for corruption, _ in self.parts}
        return [name for name in CORRUPTIONS[self.suite] if name in present] or sorted(present)

    @property
    def held_out(self) -> list[str]:
        """Corruptions that have results but do not count toward the mean."""
        return sorted({corruption for corruption, _ in self.parts}.difference(self.corruptions))

    @property
    def missing(self) -> list[str]:
        """Corruptions of the suite without results; empty if no corruption of the suite has results."""
        known = CORRUPTIONS[self.suite]
        return [name for name in known if name not in self.corruptions] if set(self.corruptions) & set(known) else []

    @property
    def severities(self) -> list[int]:
        """Severities of the corruptions that count toward the mean, sorted."""
        return sorted({severity for corruption, severity in self.parts if corruption in self.corruptions})

    @property
    def images(self) -> NDArray[np.int64]:
        """Indices of all images that have a result, sorted."""
        return np.unique(np.concatenate([part.images for part in self.parts.values()]))

    @property
    def uneven(self) -> list[str]:
        """Corruptions that lack results for some images or severities for which other corruptions have results."""
        complete = {(level, len(self.images)) for level in self.severities}
        counts = [(name, (level, len(part.images))) for (name, level), part in self.parts.items()]
        return [name for name in self.corruptions if {count for other, count in counts if other == name} != complete]


def same_images(members: Sequence[CorruptedResults]) -> bool:
    """Return True if all networks were certified on the same images, so that they can be ranked."""
    return len({entry.images.tobytes() for entry in members}) <= 1


def on_shared_images(members: Sequence[CorruptedResults]) -> list[CorruptedResults]:
    """Restrict each corruption and severity to the images that all networks with results for it share.

    If they share none for some corruption and severity, return all results unchanged.
    """
    shared = {
        key: reduce(np.intersect1d, [entry.parts[key].images for entry in members if key in entry.parts])
        for key in {key for entry in members for key in entry.parts}
    }
    if not all(map(len, shared.values())):
        return list(members)
    return [
        replace(entry, parts={key: part.only(np.isin(part.images, shared[key])) for key, part in entry.parts.items()})
        for entry in members
    ]


def corruption_groups(entries: Sequence[CorruptedResults]) -> list[list[CorruptedResults]]:
    """Group networks of the same suite, dataset, noise level and n; sort each group in the paper's order of methods."""

    def key(entry: CorruptedResults) -> tuple[str, str, float, int]:
        return entry.suite, entry.dataset or "", entry.sigma or 0.0, entry.n or 0

    ranked = sorted(entries, key=lambda entry: (*key(entry), method_rank(entry.method)))
    return [list(same) for _, same in groupby(ranked, key=key)]
