"""Parts of the report page's sentences: noise levels, lists and paired differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from smoothcert.statistics.metrics import Estimate

SIGMA = "\N{GREEK SMALL LETTER SIGMA}"


def at_sigma(sigmas: Iterable[float | None]) -> str:
    """Format noise levels as text; the text is empty if no level is known."""
    known = [f"{sigma:.2f}" for sigma in sigmas if sigma]
    return f"{SIGMA} {listed(known)}" if known else ""


def listed(texts: Sequence[str]) -> str:
    """Join texts with commas and a final `and`."""
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts)


def ahead_text(ahead: Estimate, second: str) -> str:
    """Describe the lead over the run named `second`, with its paired interval."""
    gap, low, high = (f"{value:.4f}".replace("-", "\N{MINUS SIGN}") for value in (ahead.value, ahead.low, ahead.high))
    return f"{gap} above {second} (paired 95 % interval {low} to {high})"
