"""Parts of the report page's sentences: noise levels, lists, paired differences and training costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from smoothcert.statistics.metrics import Estimate
from smoothcert.training.config import TrainConfig
from smoothcert.training.passes import relative_cost
from smoothcert.training.recipes import list_recipes, load_recipe

SIGMA = "\N{GREEK SMALL LETTER SIGMA}"


def at_sigma(sigmas: Iterable[float | None]) -> str:
    """Format noise levels as text; the text is empty if no level is known."""
    known = [f"{sigma:.2f}" for sigma in sigmas if sigma]
    return f"{SIGMA} {listed(known)}" if known else ""


def listed(texts: Sequence[str], last: str = "and") -> str:
    """Join texts with commas and a word before the last one."""
    return f"{', '.join(texts[:-1])} {last} {texts[-1]}" if len(texts) > 1 else "".join(texts)


def ahead_text(ahead: Estimate, second: str) -> str:
    """Describe the lead over the run named `second`, with its paired interval."""
    gap, low, high = (f"{value:.4f}".replace("-", "\N{MINUS SIGN}") for value in (ahead.value, ahead.low, ahead.high))
    return f"{gap} above {second} (paired 95 % interval {low} to {high})"


class Trained(NamedTuple):
    """A network whose training cost is computed from its configuration or, without one, from its recipe."""

    name: str
    dataset: str | None
    method: str | None
    sigma: float | None
    config: TrainConfig | None


def cost_sentence(networks: Sequence[Trained]) -> str:
    """State the networks' training cost relative to Gaussian training; name those whose cost comes from the recipe."""
    costs, guessed = [], []
    for name, dataset, method, sigma, config in networks:
        recipe = f"{dataset}-{method}-{sigma or 0:.2f}"
        if config is None and recipe in list_recipes():
            config = load_recipe(recipe)
            guessed.append(name)
        if config:
            costs.append((name, f"{relative_cost(config):.1f}"))
    if not costs:
        return "Not recorded for these runs."
    (name, cost), *others = costs
    second = "".join(f", {other} {times}" for other, times in others)
    note = f" ({listed(guessed)}: computed from the recipe)" if guessed else ""
    return f"{name} takes {cost} times the network passes of Gaussian training{second}{note}."
