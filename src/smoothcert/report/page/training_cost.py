"""The report page's sentence on the training cost of the best methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from smoothcert.report.page.phrases import listed
from smoothcert.training.config import TrainConfig
from smoothcert.training.passes import relative_cost
from smoothcert.training.recipes import list_recipes, load_recipe


@dataclass(frozen=True)
class Trained:
    """A network whose training cost is computed from its configuration or, without one, from its recipe."""

    name: str
    dataset: str | None
    method: str | None
    sigma: float | None
    config: TrainConfig | None

    @property
    def recipe(self) -> TrainConfig | None:
        """The recipe for this dataset, method and noise level, if there is one."""
        name = f"{self.dataset}-{self.method}-{self.sigma or 0:.2f}"
        return load_recipe(name) if name in list_recipes() else None


def cost_sentence(networks: Sequence[Trained]) -> str:
    """State the networks' training cost relative to Gaussian training; name those whose cost comes from the recipe."""
    settings = {network.name: network.config or network.recipe for network in networks}
    costs = [(name, f"{relative_cost(config):.1f}") for name, config in settings.items() if config]
    if not costs:
        return "Not recorded for these runs."
    (name, cost), *others = costs
    guessed = [network.name for network in networks if not network.config and settings[network.name]]
    note = f" ({listed(guessed)}: computed from the recipe)" if guessed else ""
    second = "".join(f", {other} {times}" for other, times in others)
    return f"{name} takes {cost} times the network passes of Gaussian training{second}{note}."
