"""Certificates on corrupted images: one network on every corruption of a set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smoothcert.dataset_names import CORRUPTIONS


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
