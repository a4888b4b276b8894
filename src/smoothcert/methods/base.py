"""The contract of a training method: a frozen dataclass of hyperparameters that implements `step`.

Each hyperparameter becomes a flag of `smoothcert train` and an entry of recipes. Costs are estimated from the class
attributes `training_passes` and `plain_options` and from the options `num_noises`, `attack_steps` and `attack_epoch`.
`smoothcert.register_method` has an example; CONTRIBUTING.md lists what else a method of the package needs. A step must
keep to these rules:

- The loss is a mean over the images of `x`, so that the losses of processes that share a mini-batch can be averaged.
- All random numbers come from `draws`, so that runs are reproducible and can resume.
- Anything that changes during training is a function of the tensor `epoch`; the method keeps no state between steps.
  If some passes through the network are needed in certain epochs only, `at_epoch` returns a cheaper method for the
  other epochs.
- `parts` has the same names in every step, unless `at_epoch` returns another method.
- In a compiled step, `self.sigma` and options of type `float` are tensors.
- No value is read back to the host (`.item()`, `if loss > 1`) and no shape depends on a value, so that steps can be
  compiled and captured as CUDA graphs. If a method has to break this rule, set `static = False`.

`smoothcert.methods.perturb` contains building blocks: losses under noise, l2 geometry and gradients for attacks.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from torch import Tensor, nn

from smoothcert.errors import UsageError, kind_of
from smoothcert.statistics.bounds import check_sigma

_METRICS = ("epoch", "learning_rate", "loss", "test_accuracy", "validation_accuracy", "kept_images", "seconds")
"""Metrics that are recorded for every method. `StepOutput.parts` must use other names."""


def option(default: Any, help: str, check: Callable[[Any], bool] | None = None, must: str = "") -> Any:
    """Declare a hyperparameter, which becomes a flag of `smoothcert train` and an entry of recipes.

    Values that fail `check` are rejected with "Expected `name` to {must}, but got ...". `must` is a phrase such as
    "be > 0".
    """
    return dataclasses.field(default=default, metadata={"help": help, "check": check, "must": must})


def positive(default: float, help: str) -> Any:
    """Declare a hyperparameter > 0."""
    return option(default, help, lambda value: value > 0, "be > 0")


def at_least_zero(default: float, help: str) -> Any:
    """Declare a hyperparameter >= 0."""
    return option(default, help, lambda value: value >= 0, "be >= 0")


def at_least_one(default: int, help: str) -> Any:
    """Declare a hyperparameter >= 1."""
    return option(default, help, lambda value: value >= 1, "be at least 1")


def one_of(help: str, default: str, *others: str) -> Any:
    """Declare a choice between names; the default comes first."""
    choices = (default, *others)
    return option(default, help, choices.__contains__, f"be one of {', '.join(choices)}")


class Draws(Protocol):
    """Source of a step's random numbers; tests substitute recorded numbers."""

    def noise(self, x: Tensor, count: int) -> Tensor:
        """Return standard normal values of shape [count, *x.shape]."""

    def uniform(self, x: Tensor, count: int) -> Tensor:
        """Return uniform random values in [0, 1), of shape [len(x), count]."""

    def direction(self, x: Tensor) -> Tensor:
        """Return standard normal values shaped like `x`, to replace gradients that vanish."""

    def images(self, x: Tensor) -> int:
        """Return the number of images in the whole mini-batch, of which `x` may be only one process's share."""


@dataclass(frozen=True)
class StepOutput:
    """The result of a training step.

    Args:
        loss: The scalar to minimize.
        parts: Tensors by name. Scalars are averaged over each epoch and recorded in `metrics.jsonl`.

    Example:
        >>> import torch
        >>> StepOutput(torch.tensor(2.0), {"cross_entropy": torch.tensor(1.5)}).watched()
        {'loss': tensor(2.), 'cross_entropy': tensor(1.5000)}
    """

    loss: Tensor
    parts: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)

    def watched(self) -> dict[str, Tensor]:
        """Return the values to record.

        Returns:
            The loss and the scalar parts by name, detached.

        Raises:
            UsageError: If the loss is not a scalar, or `parts` does not map names to tensors.
        """
        if not isinstance(self.loss, Tensor) or self.loss.dim():
            got = f"shape {list(self.loss.shape)}" if isinstance(self.loss, Tensor) else kind_of(self.loss)
            raise UsageError(f"Expected the loss of a step to be a scalar tensor, but got {got}.")
        if not isinstance(self.parts, Mapping):
            raise UsageError(f"Expected `parts` to map names to tensors, but got {kind_of(self.parts)}.")
        for name, part in self.parts.items():
            if name in _METRICS:
                raise UsageError(f"Expected `parts` not to use reserved names, but got {name!r}; rename this part.")
            if not isinstance(part, Tensor):
                raise UsageError(f"Expected `parts` to map names to tensors, but {name!r} is {kind_of(part)}.")
        scalars = {name: part.detach() for name, part in self.parts.items() if part.dim() == 0}
        return {"loss": self.loss.detach(), **scalars}


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """Base class of training methods; see `register_method` for an example, the module's docstring for the rules.

    A subclass is a frozen, keyword-only dataclass with a class attribute `name`, its hyperparameters as fields with
    defaults, and `step`. Other class attributes are optional: `title` is its name in reports. `training_passes` is the
    number of forward passes per noise sample that the loss backpropagates through, and `plain_options` are option
    values with which a step is a single such pass without an attack. `uses_soft_labels = True` has a teacher label the
    training images first. `static = False` disables compilation and CUDA graphs.

    Args:
        sigma: The standard deviation of the noise that the classifier will be smoothed with.

    Raises:
        UsageError: If a hyperparameter is invalid.

    Example:
        >>> from smoothcert.methods.gaussian import Gaussian
        >>> Gaussian(sigma=0.5)
        Gaussian(sigma=0.5, num_noises=1)
    """

    name: ClassVar[str]
    title: ClassVar[str] = ""
    training_passes: ClassVar[int] = 1
    plain_options: ClassVar[Mapping[str, Any]] = {}
    uses_soft_labels: ClassVar[bool] = False
    static: ClassVar[bool] = True

    sigma: float

    def __post_init__(self) -> None:
        check_sigma(self.sigma)
        for field in dataclasses.fields(self):
            value, check = getattr(self, field.name), field.metadata.get("check")
            if check and not check(value):
                raise UsageError(f"Expected `{field.name}` to {field.metadata['must']}, but got {value!r}.")

    @property
    def split(self) -> int:
        """Number of SGD steps that each mini-batch is split into."""
        return 1

    def at_epoch(self, epoch: int) -> Self:
        """Return the method to use in an epoch; by default, `self`.

        Override this if the passes through the network change with the epoch. At each change, the step is compiled
        again and gets its own CUDA graphs.
        """
        return self

    @abstractmethod
    def step(
        self, model: nn.Module, x: Tensor, y: Tensor, *, draws: Draws, epoch: Tensor | int, soft: Tensor | None = None
    ) -> StepOutput:
        """Compute the loss of a mini-batch.

        Args:
            model: The network in training mode; it returns scores [images, classes].
            x: Inputs [images, ...]; for image data, [images, channels, height, width] with values in [0, 1].
            y: Labels, int64 [images].
            draws: The source of all random numbers.
            epoch: The number of the epoch, counted from 0; in training runs a tensor, as CUDA graphs require.
            soft: Soft labels [images, classes] if `uses_soft_labels`, else None.

        Returns:
            The loss to minimize, and values to record.
        """


@dataclass(frozen=True, kw_only=True)
class NoiseSplitMethod(Method):
    """A method whose published code splits each mini-batch into `num_noises` SGD steps."""

    num_noises: int

    @property
    def split(self) -> int:
        """Number of SGD steps that each mini-batch is split into: one per noise sample."""
        return self.num_noises
