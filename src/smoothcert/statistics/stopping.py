"""Stopping rules of sequential certification: immutable objects that decide when an image needs no more samples.

Pass a rule to `certify_dataset(..., stop=...)`. A rule chooses the looks, that is, the numbers of samples after which
the votes are analyzed (see `smoothcert.statistics.look_plan`), and a set of radii. Sampling of an image ends once it is
decided, for each of these radii, whether the image is certified at this radius. Certificates are valid with every rule.
Does not import torch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from smoothcert.errors import UsageError, quote
from smoothcert.statistics.bounds import Floats, as_floats, check_count, check_number
from smoothcert.statistics.look_plan import Plan, dense_plan, even_plan, table_plan
from smoothcert.statistics.noise import Noise

POOLS = 24
"""Number of pools that share a sample budget; must be a multiple of the number of shards, so that no pool is split."""


@dataclass(frozen=True, kw_only=True)
class StopRule(ABC):
    """Base class of stopping rules.

    Args:
        skip_wrong: Stop after the selection if the selected class is not the label. Such an image counts as 0 in the
            certified accuracy and the ACR in any case, so this saves samples without changing either.
    """

    name: ClassVar[str]

    skip_wrong: bool = False

    @abstractmethod
    def plan(self, n: int, alpha: float) -> Plan:
        """Return the looks, up to n samples, and the share of alpha that each look spends."""

    @abstractmethod
    def needs(self, noise: Noise) -> Floats:
        """Return, for each radius to decide, the largest failure probability that certifies it."""

    def settings(self) -> dict[str, Any]:
        """Return the sidecar entries that describe the rule."""
        return {"rule": self.name, "skip_wrong": self.skip_wrong}


@dataclass(frozen=True, kw_only=True)
class TableStop(StopRule):
    """Stop when it is decided, for every radius of a grid, whether the image is certified at this radius.

    More samples would rarely change the certified accuracy at these radii.

    Args:
        radii: Radii of the grid. Radius 0 is always included, to decide whether the image is certified at all.
        skip_wrong: Stop after the selection (the first n0 samples) if the selected class is not the label.

    Raises:
        UsageError: If a value is invalid.

    Example:
        >>> TableStop(radii=(0.25, 0.5)).plan(n=1000, alpha=0.001).looks
        (200, 500, 1000)
    """

    name: ClassVar[str] = "table"

    radii: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Raise if `radii` is not a sequence of finite, non-negative numbers."""
        given = self.radii
        is_sequence = isinstance(given, Sequence) and not isinstance(given, str | bytes)
        values = as_floats("radii", given) if is_sequence else None
        if values is None or values.ndim != 1:
            raise UsageError(f"Expected `radii` to be a sequence of numbers, but got {quote(given)}.")
        for radius in values:
            if not (radius >= 0 and math.isfinite(radius)):
                raise UsageError(f"Expected `radii` to be finite and at least 0, but got {radius}.")

    def plan(self, n: int, alpha: float) -> Plan:
        """Return a few looks, the last of which spends most of alpha."""
        return table_plan(n, alpha)

    def needs(self, noise: Noise) -> Floats:
        """Return the largest failure probability that certifies each attainable radius of the grid, sorted."""
        needs = noise.failure_at([0.0, *self.radii])
        return np.unique(needs[needs > 0])

    def settings(self) -> dict[str, Any]:
        """Return the sidecar entries of the rule and its grid."""
        return {**super().settings(), "radii": list(self.radii)}


@dataclass(frozen=True, kw_only=True)
class RadiusStop(StopRule):
    """Stop when the votes decide whether the image is certified at a given radius.

    Args:
        radius: The radius; 0 to decide whether the image is certified at all.
        skip_wrong: Stop after the selection (the first n0 samples) if the selected class is not the label.

    Raises:
        UsageError: If a value is invalid.

    Example:
        >>> RadiusStop(radius=0.5).plan(n=1000, alpha=0.001).looks[:3]
        (107, 118, 130)
    """

    name: ClassVar[str] = "radius"

    radius: float = 0.0

    def __post_init__(self) -> None:
        """Check the radius."""
        if check_number("radius", self.radius) < 0:
            raise UsageError(f"Expected `radius` to be at least 0, but got {self.radius}.")

    def plan(self, n: int, alpha: float) -> Plan:
        """Return looks that are 10% apart."""
        return dense_plan(n, alpha)

    def needs(self, noise: Noise) -> Floats:
        """Return the largest failure probability that certifies the radius."""
        return noise.failure_at([self.radius])

    def settings(self) -> dict[str, Any]:
        """Return the sidecar entries of the rule and its radius."""
        return {**super().settings(), "radius": self.radius}


@dataclass(frozen=True, kw_only=True)
class BudgetStop(TableStop):
    """Spend a fixed total of samples on the images whose radii are most uncertain.

    Images are assigned to 24 pools by their position in the list of images. Every pool has its own share of the budget,
    and a shard consists of whole pools, so sharding does not change the results.

    Args:
        samples: Total number of samples for all images.
        images: Number of images that share the budget, over all shards (default: the images of this job).
        shard: (i, n) if this job is the i-th of n shards, counted from 1.
        radii: Radii of the grid, as for `TableStop`.
        skip_wrong: Stop after the selection (the first n0 samples) if the selected class is not the label.

    Raises:
        UsageError: If a value is invalid, or shards would split pools.

    Example:
        >>> BudgetStop(samples=24_000, radii=(0.25, 0.5)).plan(n=1000, alpha=0.001).alphas[0] < 0.001
        True
    """

    name: ClassVar[str] = "budget"

    samples: int = 0
    images: int | None = None
    shard: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        """Check the budget; raise if shards would split pools."""
        super().__post_init__()
        check_count("samples", self.samples)
        if self.images is not None:
            check_count("images", self.images)
        if not (isinstance(self.shard, tuple) and [type(number) for number in self.shard] == [int, int]):
            raise UsageError(f"Expected `shard` to be a tuple (i, n) of two ints, but got {quote(self.shard)}.")
        part, parts = self.shard
        if not 1 <= part <= parts:
            raise UsageError(f"Expected `shard` to be (i, n) with 1 <= i <= n, but got {self.shard}.")
        if POOLS % parts:
            possible = ", ".join(str(number) for number in range(2, POOLS + 1) if POOLS % number == 0)
            raise UsageError(
                f"Expected the number of shards in `shard` to be one of {possible} with a sample budget, "
                f"but got {parts}."
            )

    def plan(self, n: int, alpha: float) -> Plan:
        """Return the same looks as `TableStop`, each with an equal share of alpha, since any look may be the last."""
        return even_plan(n, alpha)

    def settings(self) -> dict[str, Any]:
        """Return the sidecar entries of the rule and its budget, without the shard (implied by the list of images)."""
        return {**super().settings(), "samples": self.samples, "images": self.images}

    def pools(self, count: int) -> list[int]:
        """Return the pool number of each of this shard's `count` images."""
        part, parts = self.shard
        return [(part - 1 + place * parts) % POOLS for place in range(count)]

    def pool_budgets(self, count: int) -> Sequence[int]:
        """Return the number of noise samples that each pool of images may use, in proportion to its size."""
        images = self.images or count
        sizes = [len(range(pool, images, POOLS)) for pool in range(POOLS)]
        return [self.samples * size // images for size in sizes]
