"""Sampling protocol as stored in a sidecar: the settings that certificates depend on. Does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from smoothcert.errors import UsageError
from smoothcert.results.sidecar import known_classes, known_dimensions
from smoothcert.statistics.bounds import Floats
from smoothcert.statistics.cascade import CascadeRule
from smoothcert.statistics.certify import certify_looks
from smoothcert.statistics.look_plan import Plan, dense_plan, even_plan, fixed_plan, plan_of, table_plan
from smoothcert.statistics.noise import GRID_STEP, GaussianNoise, GridNoise, Noise, convert_radius, noise_of

_PLANS = {"table": table_plan, "radius": dense_plan, "budget": even_plan}


@dataclass(frozen=True)
class StoredProtocol:
    """Settings of a sidecar that certificates depend on; `classes` and `dimensions` are None if unknown."""

    noise: Noise
    plan: Plan
    sequential: bool
    n0: int
    bound: str
    top: int
    seed: int
    norm: str
    classes: int | None
    dimensions: int | None
    cascade: CascadeRule | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> StoredProtocol:
        """Read the settings of a sidecar; raise if they contradict each other."""
        noise, stop = noise_of(settings), settings.get("stop")
        alpha, top = float(settings["alpha"]), int(settings.get("top_k", 1))
        plan = plan_of(stop, alpha) if stop else fixed_plan(int(settings["n"]), alpha)
        _check_plan(plan, (stop or {}).get("rule"), int(settings["n"]))
        return cls(
            noise=noise,
            plan=plan,
            sequential=bool(stop),
            n0=int(settings["n0"]),
            bound=settings.get("bound", "two-sided" if top > 1 else "one-sided"),
            top=top,
            seed=int(settings.get("seed", 0)),
            norm=settings.get("norm", noise.norm),
            classes=known_classes(settings),
            dimensions=known_dimensions(settings),
            cascade=_cascade_rule(settings["cascade"], noise, alpha) if "cascade" in settings else None,
        )

    @property
    def tolerance(self) -> float:
        """Largest accepted difference between stored and recomputed radii, since SciPy versions differ slightly."""
        return 1e-8 * self.noise.sigma + (1.1 * GRID_STEP if isinstance(self.noise, GridNoise) else 0.0)

    @property
    def exact(self) -> bool:
        """True if class and radius can be recomputed exactly; otherwise, recomputed radii are only upper bounds."""
        converted = convert_radius([1.0], self.noise.norm, self.norm, 4)[0] != 1.0
        return (self.classes is not None or self.bound != "two-sided") and bool(self.dimensions or not converted)

    def in_norm(self, radius: Floats) -> Floats:
        """Convert radii from the norm of the noise to the norm of the results."""
        return convert_radius(radius, self.noise.norm, self.norm, self.dimensions or 1)

    def largest(self, classes: int) -> float:
        """Return the largest possible radius: the radius that unanimous votes prove."""
        votes = np.zeros((1, len(self.plan.looks), max(2, classes)), dtype=np.int64)
        votes[0, :, 0] = self.plan.looks
        reached, ones = [len(self.plan.looks)], np.ones(1)
        found = certify_looks([0], votes, reached, self.plan, self.noise, self.bound, top=self.top, uniforms=ones)
        return float(self.in_norm(found.radius)[0])


def _cascade_rule(cascade: Mapping[str, Any], noise: Noise, alpha: float) -> CascadeRule:
    sigmas = tuple(float(level["sigma"]) for level in cascade["levels"])
    if sigmas[:1] != (noise.sigma,) or noise.name != GaussianNoise.name:
        raise UsageError("The sidecar's noise must be Gaussian, with the sigma of the cascade's first level.")
    return CascadeRule(sigmas, float(cascade["p0"]), alpha, float(cascade["first_share"]))


def _check_plan(plan: Plan, rule: str | None, n: int) -> None:
    """Raise if the last look is not at `n` samples, or if only the looks, not their alphas, are standard for `rule`."""
    if rule not in _PLANS:
        return
    usual = _PLANS[rule](n, plan.alpha)
    if plan.looks[-1] != n or (plan.looks == usual.looks and not np.allclose(plan.alphas, usual.alphas, rtol=1e-6)):
        raise UsageError("The looks in the sidecar do not match its n and alpha.")
