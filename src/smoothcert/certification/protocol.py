"""The sampling protocol of a certification, as an immutable object that is validated on creation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from smoothcert.errors import UsageError, quote
from smoothcert.statistics import bounds
from smoothcert.statistics.certify import check_bound
from smoothcert.statistics.look_plan import Plan, fixed_plan
from smoothcert.statistics.stopping import StopRule


@dataclass(frozen=True, kw_only=True)
class SamplingProtocol:
    """Sample sizes, error probability, seed of the noise, bound, and stopping rule (None for a fixed n)."""

    n0: int
    n: int
    alpha: float
    seed: int
    bound: str = "one-sided"
    stop: StopRule | None = None

    def __post_init__(self) -> None:
        """Raise if a value is invalid, or if not even unanimous votes could certify an input."""
        check_bound(self.bound)
        bounds.check_budget(self.n0, self.n, self.alpha, self.bound)
        bounds.check_seed(self.seed)
        if not (self.stop is None or isinstance(self.stop, StopRule)):
            expected = "a rule of `smoothcert.stopping`, such as TableStop()"
            raise UsageError(f"Expected `stop` to be {expected}, but got {quote(self.stop)}.")
        if self.stop and self.bound != "one-sided":
            raise UsageError(
                f"Expected `bound` to be 'one-sided' with a stopping rule, but got {self.bound!r}; `smoothcert "
                "recertify` computes other bounds from the stored votes."
            )

    @property
    def plan(self) -> Plan:
        """The looks, and the share of alpha that each look spends."""
        return self.stop.plan(self.n, self.alpha) if self.stop else fixed_plan(self.n, self.alpha)

    @property
    def edges(self) -> tuple[int, ...]:
        """Sample numbers at which stages begin and end: the selection, then one stage per look."""
        return (0, self.n0, *(self.n0 + look for look in self.plan.looks))

    def settings(self) -> dict[str, Any]:
        """Return the sidecar entries that describe the protocol; defaults (one-sided bound, fixed n) are omitted."""
        settings = {"task": "certify", "n0": self.n0, "n": self.n, "alpha": self.alpha, "seed": self.seed}
        settings |= {} if self.bound == "one-sided" else {"bound": self.bound}
        return settings | ({"stop": {**self.stop.settings(), **self.plan.settings()}} if self.stop else {})
