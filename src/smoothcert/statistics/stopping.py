"""When certification has seen enough: the rules one may choose. Frozen values, no torch.

Each rule says at which looks the votes are read (see `smoothcert.statistics.look_plan`) and which radii it asks about.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from smoothcert.errors import UsageError
from smoothcert.statistics.bounds import Floats
from smoothcert.statistics.look_plan import Plan, dense_plan, even_plan, grid_needs, table_plan
from smoothcert.statistics.noise import Noise

POOLS = 24
"""Among how many pools a budget is divided: shards of any number that divides it have whole pools."""


@dataclass(frozen=True)
class StopRule(ABC):
    """What all rules have: `skip_wrong` leaves images alone whose selected class is not the label."""

    name: ClassVar[str]

    skip_wrong: bool = False

    @abstractmethod
    def plan(self, n: int, alpha: float) -> Plan:
        """Return the looks, up to n samples."""

    @abstractmethod
    def needs(self, noise: Noise) -> Floats:
        """Return the failure probabilities that it asks about."""

    def settings(self) -> dict[str, Any]:
        """Return what the rows depend on, for a sidecar."""
        return {"rule": self.name, "skip_wrong": self.skip_wrong}


@dataclass(frozen=True)
class TableStop(StopRule):
    """Stop when no radius of a grid is undecided: the certified-accuracy table is that of all n samples."""

    name: ClassVar[str] = "table"

    radii: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Refuse radii that no table has."""
        check_radii(self.radii)

    def plan(self, n: int, alpha: float) -> Plan:
        """Return a few looks, of which the last has most of alpha."""
        return table_plan(n, alpha)

    def needs(self, noise: Noise) -> Floats:
        """Return those of the grid."""
        return grid_needs(noise, self.radii)

    def settings(self) -> dict[str, Any]:
        """Return the grid too."""
        return {**super().settings(), "radii": list(self.radii)}


@dataclass(frozen=True)
class RadiusStop(StopRule):
    """Stop when it is decided whether the image is certified at one radius."""

    name: ClassVar[str] = "radius"

    radius: float = 0.0
    confidence: str = "union"

    def __post_init__(self) -> None:
        """Refuse a radius that no ball has."""
        check_radii([self.radius])

    def plan(self, n: int, alpha: float) -> Plan:
        """Return looks a tenth apart."""
        return dense_plan(n, alpha, self.confidence)

    def needs(self, noise: Noise) -> Floats:
        """Return that of the radius alone."""
        return noise.failure_at([self.radius])

    def settings(self) -> dict[str, Any]:
        """Return the radius too."""
        return {**super().settings(), "radius": self.radius}


@dataclass(frozen=True)
class BudgetStop(TableStop):
    """Spend a number of samples, or of seconds, on the images that are widest undecided.

    The number is for `images` images in all, of which this is the `shard`; by default all of them. Samples are divided
    among pools of images, by their place in the list, and spent within each pool: so a shard of whole pools spends as
    it would beside the others.
    """

    name: ClassVar[str] = "budget"

    samples: int | None = None
    seconds: float | None = None
    images: int | None = None
    shard: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        """Refuse no budget, two budgets, and shards that would cut pools."""
        super().__post_init__()
        if (self.samples is None) == (self.seconds is None):
            raise UsageError("Name a budget in samples or in seconds, one of them.")
        amount = self.samples if self.samples is not None else self.seconds
        if amount is None or not (amount > 0 and math.isfinite(amount)):
            raise UsageError(f"Expected `--budget` to be > 0, but got {amount}.")
        part, parts = self.shard
        if not 1 <= part <= parts:
            raise UsageError(f"Expected `--shard` as I/N with I from 1 to N, but got {part}/{parts}.")
        if self.samples is not None and POOLS % parts:
            possible = ", ".join(str(number) for number in range(2, POOLS + 1) if POOLS % number == 0)
            raise UsageError(f"A budget of samples is shared by {possible} shards, not by {parts}.")

    def plan(self, n: int, alpha: float) -> Plan:
        """Return the table's looks with alpha in equal parts, since any of them may be the last."""
        return even_plan(n, alpha)

    def settings(self) -> dict[str, Any]:
        """Return the budget too; the shard is told by the images."""
        amount = {"seconds": self.seconds} if self.samples is None else {"samples": self.samples, "images": self.images}
        return {**super().settings(), **amount}

    def pools(self, count: int) -> list[int]:
        """Return the pool of each of this shard's `count` images; a budget of seconds has one."""
        part, parts = self.shard
        return [0 if self.samples is None else (part - 1 + place * parts) % POOLS for place in range(count)]

    def pool_budgets(self, count: int) -> Sequence[int]:
        """Return the samples of every pool, in proportion to its images."""
        total, images = self.samples or 0, self.images or count
        sizes = [len(range(pool, images, POOLS)) for pool in range(POOLS)]
        return [total * size // images for size in sizes]


def check_radii(radii: Sequence[float]) -> None:
    """Refuse radii that are negative or no numbers."""
    for radius in radii:
        if not (radius >= 0 and math.isfinite(radius)):
            raise UsageError(f"Expected a radius of at least 0, but got {radius}.")
