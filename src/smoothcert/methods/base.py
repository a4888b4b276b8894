"""The contract of a training method: frozen hyperparameters and one step, pure tensor code.

The loss is a mean over the images it is given, so that ranks which share a mini-batch can average theirs.
A step neither reads a value back to the host nor lets a shape depend on one, so that it can be captured or compiled.
Everything random comes through `draws`, and what changes over training is a function of the tensor `epoch`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn

from smoothcert.errors import UsageError
from smoothcert.statistics.bounds import check_sigma

_METRICS = ("epoch", "learning_rate", "loss", "test_accuracy", "seconds")  # of every method


def option(default: Any, help: str, check: Callable[[Any], bool] | None = None, must: str = "") -> Any:
    """A hyperparameter: a flag of `smoothcert train`, a line of a recipe, a row of the documentation."""
    checked = {"check": check, "must": must} if check else {}
    return dataclasses.field(default=default, metadata={"help": help, **checked})


def positive(default: float, help: str) -> Any:
    """A hyperparameter above 0."""
    return option(default, help, lambda value: value > 0, "be > 0")


def at_least_zero(default: float, help: str) -> Any:
    """A hyperparameter of 0 or more."""
    return option(default, help, lambda value: value >= 0, "be >= 0")


def at_least_one(default: int, help: str) -> Any:
    """A number of things."""
    return option(default, help, lambda value: value >= 1, "be at least 1")


def one_of(help: str, default: str, *others: str) -> Any:
    """A choice between names, the first of which is the paper's."""
    choices = (default, *others)
    return option(default, help, choices.__contains__, f"be one of {', '.join(choices)}")


class Draws(Protocol):
    """Where a step's random numbers come from; a test can put recorded ones in their place."""

    def noise(self, x: Tensor, count: int) -> Tensor:
        """Return standard normals [count, *x.shape]."""

    def uniform(self, x: Tensor, count: int) -> Tensor:
        """Return numbers in [0, 1), [images, count]."""

    def direction(self, x: Tensor) -> Tensor:
        """Return standard normals shaped like x, for images whose gradient vanished."""

    def images(self, x: Tensor) -> int:
        """Return the number of images in the whole mini-batch, of which x may be a part."""


@dataclass(frozen=True)
class StepOutput:
    """The loss to descend, and parts of it worth watching."""

    loss: Tensor
    parts: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)

    def watched(self) -> dict[str, Tensor]:
        """Return what is worth watching, the loss and the parts that are single numbers; refuse what is neither."""
        if self.loss.dim():
            raise UsageError(f"Expected a single number as the loss of a step, but got shape {list(self.loss.shape)}.")
        for name, part in self.parts.items():
            if name in _METRICS or not hasattr(part, "dim"):
                kind = "a metric of every run" if name in _METRICS else f"a {type(part).__name__}"
                raise UsageError(f"Expected a step's parts as tensors by names of their own, but {name!r} is {kind}.")
        single = {name: part.detach() for name, part in self.parts.items() if part.dim() == 0}
        return {"loss": self.loss.detach(), **single}


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A way to train a classifier that is to be smoothed with noise of standard deviation `sigma`."""

    name: ClassVar[str]
    uses_soft_labels: ClassVar[bool] = False
    static: ClassVar[bool] = True  # whether a step can be captured and compiled: no shape depends on a value

    sigma: float

    def __post_init__(self) -> None:
        """Refuse hyperparameters that make no sense, by the name of their flag."""
        check_sigma(self.sigma)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if "check" in field.metadata and not field.metadata["check"](value):
                raise UsageError(f"`--{field.name.replace('_', '-')}` must {field.metadata['must']}, got {value}.")

    @property
    def split(self) -> int:
        """Into how many steps the published code cuts a mini-batch: as many as there are noises, where there are."""
        return 1

    @abstractmethod
    def step(
        self, model: nn.Module, x: Tensor, y: Tensor, *, draws: Draws, epoch: Tensor, soft: Tensor | None = None
    ) -> StepOutput:
        """Return the loss of images in [0, 1] with labels y (and soft labels, for a method that uses them)."""
