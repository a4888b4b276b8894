"""Plans of sequential certification: the looks, the share of alpha that each look spends, and when to stop.

A look is an interim analysis of the votes. A plan fixes in advance after how many noise samples each look takes place,
and how much of alpha it may spend. By the union bound, the best lower bound over all looks so far is valid at
confidence 1 - alpha, even if sampling stops because of the votes seen so far. So no stopping rule can invalidate a
certificate; a rule only decides whether more samples are worth their cost. Does not import torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from smoothcert.errors import UsageError
from smoothcert.statistics.bounds import Floats, check_alpha, failure_upper_bound
from smoothcert.statistics.noise import Noise

_CONFIDENCE = "union"


@dataclass(frozen=True)
class Plan:
    """Looks, given as numbers of samples, and the share of `alpha` that each look spends."""

    looks: tuple[int, ...]
    alphas: tuple[float, ...]
    alpha: float

    def __post_init__(self) -> None:
        """Raise if the looks are not increasing, or if their shares sum to more than alpha."""
        check_alpha(self.alpha)
        if not self.looks or list(self.looks) != sorted({*self.looks}) or self.looks[0] < 1:
            raise UsageError(f"Expected `looks` to be positive and increasing, but got {self.looks}.")
        if len(self.alphas) != len(self.looks) or not all(0 < alpha < 1 for alpha in self.alphas):
            raise UsageError(f"Expected `alphas` to have one value between 0 and 1 per look, but got {self.alphas}.")
        if math.fsum(self.alphas) > self.alpha * (1 + 1e-12):
            raise UsageError(
                f"Expected `alphas` to sum to at most alpha = {self.alpha:g}, but got {math.fsum(self.alphas):g}."
            )

    def at(self, alpha: float) -> Plan:
        """Return the plan for another alpha: the same looks, with their shares scaled in proportion."""
        check_alpha(alpha)
        return Plan(self.looks, tuple(share * (alpha / self.alpha) for share in self.alphas), alpha)

    def failure(self, successes: ArrayLike, look: int) -> Floats:
        """Return the upper bound on the failure probability, given the successes up to one look (counted from 0)."""
        return failure_upper_bound(successes, self.looks[look], self.alphas[look])

    def best_failure(self, successes: ArrayLike, look: int) -> Floats:
        """Return the bound that the last look would give if all samples after this look succeeded."""
        last = len(self.looks) - 1
        return self.failure(np.asarray(successes) + self.looks[last] - self.looks[look], last)

    def settings(self) -> dict[str, Any]:
        """Return the sidecar entries that describe the looks."""
        return {"confidence": _CONFIDENCE, "looks": list(self.looks), "alphas": list(self.alphas)}


def plan_of(stop: dict[str, Any], alpha: float) -> Plan:
    """Return the plan described by the `stop` entry of a sidecar."""
    if lacking := [key for key in ("confidence", "looks", "alphas") if key not in stop]:
        raise UsageError(f"The stopping rule in the sidecar lacks {', '.join(lacking)}; was the sidecar edited?")
    if stop["confidence"] != _CONFIDENCE:
        raise UsageError(
            f"These results use a {stop['confidence']} confidence sequence, which is no longer supported: their rows "
            "can be reported, but not recomputed."
        )
    return Plan(tuple(stop["looks"]), tuple(stop["alphas"]), alpha)


def fixed_plan(n: int, alpha: float) -> Plan:
    """Return the plan of CERTIFY (Cohen et al., 2019): one look at all n samples."""
    return Plan((n,), (alpha,), alpha)


def table_plan(n: int, alpha: float) -> Plan:
    """Return a group-sequential plan: early looks share a tenth of alpha; the last look, at n samples, spends the rest.

    >>> table_plan(2000, 0.01).looks, [round(share, 9) for share in table_plan(2000, 0.01).alphas]
    ((200, 500, 1000, 2000), [0.000333333, 0.000333333, 0.000333333, 0.009])
    """
    early = _early_looks(n)
    if not early:
        return fixed_plan(n, alpha)
    return Plan((*early, n), (*[0.1 * alpha / len(early)] * len(early), 0.9 * alpha), alpha)


def _early_looks(n: int) -> list[int]:
    """Return the numbers 200, 500, 1,000, 2,000, 4,000, 8,000, ... that are below n."""
    return [look for look in (200, 500, *(1000 << i for i in range(32))) if look < n]


def even_plan(n: int, alpha: float) -> Plan:
    """Return a plan for sampling under a total budget: the looks of `table_plan`, each with an equal share of alpha.

    The shares are equal because any look may be an image's last.
    """
    looks = (*_early_looks(n), n)
    return Plan(looks, (alpha / len(looks),) * len(looks), alpha)


def dense_plan(n: int, alpha: float) -> Plan:
    """Return a plan with looks 10% apart, the first at 107 samples.

    Look t = 1, 2, ... is at ceil(1.1 ** (t + 48)) samples, or at n if n is smaller, and spends
    5 alpha / ((t + 4) (t + 5)). These shares sum to at most alpha for any n.
    """
    looks, t = list[int](), 1
    while not looks or looks[-1] < n:
        looks.append(min(n, math.ceil(1.1 ** (t + 48))))
        t += 1
    shares = [5 * alpha / ((t + 4) * (t + 5)) for t in range(1, len(looks) + 1)]
    return Plan(tuple(looks), tuple(shares), alpha)


def failure_lower_bound(successes: ArrayLike, trials: ArrayLike, alpha: float) -> Floats:
    """Return the Clopper-Pearson lower bound on the failure probability at confidence 1 - alpha."""
    check_alpha(alpha)
    k, n = np.broadcast_arrays(np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    bound = np.zeros(k.shape)
    some = k < n
    bound[some] = special.betaincinv(n[some] - k[some], k[some] + 1, alpha)
    return bound


def undecided(plan: Plan, needs: ArrayLike, successes: ArrayLike, look: int, failure: ArrayLike) -> Any:
    """Return a mask of the inputs for which some value in `needs` is still undecided after a look.

    `needs` lists failure probabilities that certify the radii of interest, and `failure` is each input's best upper
    bound so far. A value in `needs` is decided in three cases: `failure` does not exceed it; a lower bound on the
    failure probability, at confidence 1 - alpha, exceeds it; or not even unanimous further votes could bring the upper
    bound down to it. In the last two cases sampling just stops; this cannot cause a false certificate, so it spends no
    alpha.
    """
    k = np.asarray(successes)[..., None]
    wanted = np.asarray(needs, dtype=np.float64)
    possible = failure_lower_bound(k, plan.looks[look], plan.alpha) <= wanted
    possible &= plan.best_failure(k, look) <= wanted
    return (possible & (wanted < np.asarray(failure)[..., None])).any(axis=-1)


def check_reach(plan: Plan, needs: Floats, noise: Noise) -> None:
    """Raise if not even unanimous votes could bring the upper bound down to any failure probability in `needs`."""
    least = min(float(plan.failure(look, number)) for number, look in enumerate(plan.looks))
    if least > needs.max():
        radius = float(noise.gap_radius(least, least))
        most = f"a radius of at most {math.floor(radius * 1e4) / 1e4}" if radius >= 0 else "nothing"
        samples = f"n = {plan.looks[-1]:,} and alpha = {plan.alpha:g}"
        raise UsageError(f"With {samples}, even unanimous votes certify {most}; choose a larger n or alpha.")
