"""Certification that looks at its votes more than once: looks, the alpha each spends, and when to stop. No torch.

A plan fixes in advance at which numbers of samples the votes are looked at, and how much of alpha each look may spend.
The lower bound of the class's probability is the best over the looks so far. It holds at all looks at once, hence also
at a look chosen by what was seen: no rule for stopping can break it. Rules only decide what more samples would buy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from smoothcert.errors import UsageError, unknown_name
from smoothcert.statistics.bounds import Floats, check_alpha, failure_upper_bound
from smoothcert.statistics.noise import Noise

CONFIDENCES = ("union", "betting")


@dataclass(frozen=True)
class Plan:
    """Numbers of samples at which votes are looked at, and the alpha that each look spends.

    `confidence` is `union`, a Clopper-Pearson bound at every look, whose alphas sum to at most `alpha`; or `betting`,
    a sequence that is valid at all looks at once, where every look has the whole alpha.
    """

    looks: tuple[int, ...]
    alphas: tuple[float, ...]
    alpha: float
    confidence: str = "union"

    def __post_init__(self) -> None:
        """Refuse looks out of order and alphas that are spent twice."""
        check_alpha(self.alpha)
        if self.confidence not in CONFIDENCES:
            raise unknown_name("confidence", self.confidence, CONFIDENCES)
        if not self.looks or list(self.looks) != sorted({*self.looks}) or self.looks[0] < 1:
            raise UsageError(f"Expected `looks` to be positive and increasing, but got {self.looks}.")
        if len(self.alphas) != len(self.looks) or not all(0 < alpha < 1 for alpha in self.alphas):
            raise UsageError("Expected one alpha between 0 and 1 for every look.")
        if self.confidence == "union" and math.fsum(self.alphas) > self.alpha * (1 + 1e-12):
            raise UsageError(f"The looks spend {math.fsum(self.alphas):g} of alpha = {self.alpha:g}.")
        if max(self.alphas) > self.alpha * (1 + 1e-12):
            raise UsageError(f"A look spends {max(self.alphas):g} of alpha = {self.alpha:g}.")

    def at(self, alpha: float) -> Plan:
        """Return the same looks with every share of alpha scaled to another total."""
        check_alpha(alpha)
        scaled = tuple(share * (alpha / self.alpha) for share in self.alphas)
        return Plan(self.looks, scaled, alpha, self.confidence)

    def failure(self, successes: ArrayLike, look: int) -> Floats:
        """Return the upper bound of the failure probability from the successes at one look (counted from 0)."""
        if self.confidence == "betting":
            return betting_bound(successes, self.looks[look], self.alphas[look])
        return failure_upper_bound(successes, self.looks[look], self.alphas[look])

    def best_failure(self, successes: ArrayLike, look: int) -> Floats:
        """Return the bound of the last look if every sample from here on succeeds: nothing better can be proven."""
        last = len(self.looks) - 1
        return self.failure(np.asarray(successes) + self.looks[last] - self.looks[look], last)

    def settings(self) -> dict[str, Any]:
        """Return what the bounds depend on, for a sidecar."""
        return {"confidence": self.confidence, "looks": list(self.looks), "alphas": list(self.alphas)}


def fixed_plan(n: int, alpha: float) -> Plan:
    """Return the plan of CERTIFY as published: one look at all n samples."""
    return Plan((n,), (alpha,), alpha)


def table_plan(n: int, alpha: float) -> Plan:
    """Return a group-sequential plan: a few looks share a tenth of alpha, the last at n samples has the rest.

    >>> table_plan(2000, 0.01).looks, [round(share, 9) for share in table_plan(2000, 0.01).alphas]
    ((200, 500, 1000, 2000), [0.000333333, 0.000333333, 0.000333333, 0.009])
    """
    early = _early_looks(n)
    if not early:
        return fixed_plan(n, alpha)
    return Plan((*early, n), (*[0.1 * alpha / len(early)] * len(early), 0.9 * alpha), alpha)


def _early_looks(n: int) -> list[int]:
    """Return 200, 500, 1,000 and then twice as many each time, below n."""
    return [look for look in (200, 500, *(1000 << i for i in range(32))) if look < n]


def even_plan(n: int, alpha: float) -> Plan:
    """Return the table's looks with alpha shared evenly, since a budget may end at any of them."""
    looks = (*_early_looks(n), n)
    return Plan(looks, (alpha / len(looks),) * len(looks), alpha)


def dense_plan(n: int, alpha: float, confidence: str = "union") -> Plan:
    """Return looks a tenth apart, the first beyond 100 samples, with alphas that sum to alpha however many there are.

    Look t is at ceil(1.1 ** (t + 48)) samples and spends 5 alpha / ((t + 4) (t + 5)).
    """
    looks, t = list[int](), 1
    while not looks or looks[-1] < n:
        looks.append(min(n, math.ceil(1.1 ** (t + 48))))
        t += 1
    shares = [5 * alpha / ((t + 4) * (t + 5)) for t in range(1, len(looks) + 1)]
    return Plan(tuple(looks), tuple([alpha] * len(looks) if confidence == "betting" else shares), alpha, confidence)


def failure_lower_bound(successes: ArrayLike, trials: ArrayLike, alpha: float) -> Floats:
    """Return the Clopper-Pearson lower bound, at confidence 1 - alpha, of the probability to fail."""
    check_alpha(alpha)
    k, n = np.broadcast_arrays(np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    bound = np.zeros(k.shape)
    some = k < n
    bound[some] = special.betaincinv(n[some] - k[some], k[some] + 1, alpha)
    return bound


def betting_bound(successes: ArrayLike, trials: int, alpha: float) -> Floats:
    """Return an upper bound of the failure probability that holds at every number of trials at once.

    A bettor who mixes over all probabilities with Jeffreys' prior multiplies a stake of 1 by
    M(q) = B(k + 1/2, n - k + 1/2) / B(1/2, 1/2) / ((1 - q)^k q^(n - k)) if the failure probability is q; by Ville's
    inequality M(q) ever reaches 1/alpha with probability alpha at most. The bound is the q above the share of failures
    where M does so: the mixture bets both ways, and only losses of too *high* a q speak for a certificate.
    """
    check_alpha(alpha)
    k = np.asarray(successes, dtype=np.float64)
    lost = trials - k
    stake = special.betaln(k + 0.5, lost + 0.5) - special.betaln(0.5, 0.5) + math.log(alpha)
    low, high = lost / trials, np.ones_like(k)
    for _ in range(80):  # to a double's precision: geometric steps to the right size first, then halves
        middle = np.where(low > high / 4, (low + high) / 2, np.sqrt(np.maximum(low, high * 1e-6) * high))
        rich = stake - special.xlog1py(k, -middle) - special.xlogy(lost, middle) >= 0
        low, high = np.where(rich, low, middle), np.where(rich, middle, high)
    return np.asarray(high)


def undecided(plan: Plan, needs: ArrayLike, successes: ArrayLike, look: int, failure: ArrayLike) -> Any:
    """Return which inputs are still undecided at a look, for some of the failure probabilities `needs` ask about.

    `failure` is the best upper bound so far. A need is decided where that bound proves it, where a lower bound at
    confidence 1 - alpha speaks against it, or where even successes alone could not prove it any more. The last two only
    give up, which can never make a false certificate and so spends nothing.
    """
    k = np.asarray(successes)[..., None]
    wanted = np.asarray(needs, dtype=np.float64)
    hopeful = failure_lower_bound(k, plan.looks[look], plan.alpha) <= wanted
    hopeful &= plan.best_failure(k, look) <= wanted
    return (hopeful & (wanted < np.asarray(failure)[..., None])).any(axis=-1)


def grid_needs(noise: Noise, radii: Sequence[float]) -> Floats:
    """Return the failure probabilities that prove a grid of radii; radius 0, an answer at all, is always among them."""
    needs = noise.failure_at([0.0, *radii])
    return np.unique(needs[needs > 0])


def check_reach(plan: Plan, needs: Floats, noise: Noise) -> None:
    """Refuse a rule whose every need lies beyond what successes alone could prove, and say how far those reach."""
    least = min(float(plan.failure(look, number)) for number, look in enumerate(plan.looks))
    if least > needs.max():
        radius = float(noise.gap_radius(least, least))
        most = f"a radius of {math.floor(radius * 1e4) / 1e4} at most" if radius >= 0 else "nothing"
        samples = f"n = {plan.looks[-1]:,} and alpha = {plan.alpha:g}"
        raise UsageError(f"With {samples} this rule can prove {most}, whatever the votes; take a larger n.")
