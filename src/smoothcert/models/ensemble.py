"""Ensembles of networks, which average the scores of their members."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.errors import UsageError, kind_of, quote, takes
from smoothcert.models.layers import Classifier, NamedModel


@takes(models=Iterable, consensus=(int, type(None)))
class Ensemble(nn.Module):
    """An ensemble of models, which is itself a model (Horvath et al., 2022).

    Its scores are the mean of its members' scores. With `consensus` K, an input on which the first K members predict
    the same class gets the mean of these K members' scores, so that only the other inputs need all members; the scores
    then depend on the order of the members. In both cases, the ensemble is a fixed function of the input and can be
    certified.

    Args:
        models: The members, models for the same inputs and classes. Usually they differ only in their training seed.
        consensus: Number K of leading members whose scores suffice if they agree: at least 2 and less than the number
            of members (default: all members score every input).

    Raises:
        UsageError: If the members are incompatible, or `consensus` is out of range.

    Example:
        >>> import smoothcert, torch
        >>> members = [lambda x, edge=edge: torch.cat([edge - x, x - edge], 1) for edge in (0.0, 0.1, 0.2)]
        >>> ensemble = smoothcert.Ensemble(members, consensus=2)
        >>> ensemble(torch.tensor([[0.3], [0.05]])).argmax(dim=1).tolist()
        [1, 0]
        >>> smoothcert.SmoothedClassifier(ensemble, sigma=0.25, num_classes=2).predict(torch.tensor([0.5]))
        1
    """

    def __init__(self, models: Sequence[Callable[[Tensor], Any]], consensus: int | None = None) -> None:
        super().__init__()
        members = list(models)
        if len(members) < 2:
            raise UsageError(f"Expected at least two `models` in an ensemble, but got {len(members)}.")
        for member in members:
            if not callable(member):
                raise UsageError(f"Expected `models` to be callable, but got {kind_of(member)}.")
        if consensus is not None and not 2 <= consensus < len(members):
            raise UsageError(
                "Expected `consensus` to be a whole number, at least 2 and less than the number of members "
                f"({len(members)}), but got {quote(consensus)}."
            )
        same = {"num_classes": "number of classes", "in_channels": "number of channels", "image_size": "image size"}
        for name, what in same.items():
            values = [getattr(member, name) for member in members if isinstance(member, Classifier)]
            if other := [value for value in values if value != values[0]]:
                raise UsageError(f"Expected members with the same {what}, but got {values[0]} and {other[0]}.")
        modules = all(isinstance(member, nn.Module) for member in members)
        self.members: Any = nn.ModuleList(members) if modules else tuple(members)  # type: ignore[arg-type]
        self.consensus = consensus

    @property
    def of_networks(self) -> bool:
        """True if all members are networks from `create_model`."""
        return all(isinstance(member, Classifier) for member in self.members)

    @property
    def num_classes(self) -> int | None:
        """Number of classes, or None if unknown."""
        return next((int(member.num_classes) for member in self.members if isinstance(member, NamedModel)), None)

    @property
    def architecture(self) -> str:
        """Names of the members' architectures, without duplicates, separated by commas."""
        names = [member.architecture for member in self.members if isinstance(member, NamedModel)]
        return ", ".join(dict.fromkeys(names))

    def check_shape(self, shape: Sequence[int]) -> None:
        """Raise if a member does not accept images of shape [channels, height, width]."""
        for member in self.members:
            if isinstance(member, NamedModel):
                member.check_shape(shape)

    def with_members(self, change: Callable[[Any], Callable[[Tensor], Any]]) -> Ensemble:
        """Apply `change` to every member; return an ensemble of the results."""
        return Ensemble([change(member) for member in self.members], self.consensus)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of a batch."""
        total, agree = self.first(x)
        mean = self.rest(x, total)
        return mean if self.consensus is None else torch.where(agree.unsqueeze(1), total / self.consensus, mean)

    def first(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum of the first members' scores, and a mask of the inputs on which they agree.

        Without `consensus`, only one member counts as first, and the mask is False everywhere.
        """
        scores = [_scores(member, x) for member in self.members[: self.consensus or 1]]
        total = _total(scores)
        classes = torch.stack([one.argmax(dim=1) for one in scores])
        return total, (classes == classes[0]).all(dim=0) & (self.consensus is not None)

    def rest(self, x: Tensor, total: Tensor) -> Tensor:
        """Return the mean score of all members; `total` is the sum that `first` returned for the same inputs."""
        scores = [_scores(member, x) for member in self.members[self.consensus or 1 :]]
        return _total([total, *scores]) / len(self.members)


def _scores(member: Callable[[Tensor], Any], x: Tensor) -> Tensor:
    scores = member(x)
    if not isinstance(scores, Tensor) or scores.dim() != 2:
        got = f"shape {list(scores.shape)}" if isinstance(scores, Tensor) else kind_of(scores)
        raise UsageError(f"Expected scores [batch, classes] from every member, but got {got}.")
    return scores.clone()  # a member may reuse its output buffer


def _total(scores: Sequence[Tensor]) -> Tensor:
    total = scores[0]
    for other in scores[1:]:
        if other.shape != total.shape:
            got = f"{total.shape[1]} and {other.shape[1]}"
            raise UsageError(f"Expected members with the same number of classes, but got {got}.")
        total = total + other
    return total
