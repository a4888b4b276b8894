"""Users' own networks, with the name and shapes that run folders and checkpoints record."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.errors import UsageError, first_line, kind_of
from smoothcert.models.layers import NamedModel

Factory = Callable[..., nn.Module]
"""Function or class that returns a network; it may have parameters `num_classes` and `input_shape`."""


class UserModel(NamedModel):
    """A user's network, for inputs of one shape.

    Scores are returned in the dtype of the inputs, so that losses are computed in float32 even under bfloat16 autocast.
    If the network's output has an attribute `logits`, as in Hugging Face Transformers, that attribute is used as
    the scores. Checkpoints store the weights under the network's own names, without the prefix `network.`.

    `num_classes` is the number of scores per input. It may be larger than `data_classes`, the number of classes in the
    data, which the network's factory received.
    """

    def __init__(
        self, network: nn.Module, architecture: str, *, num_classes: int, data_classes: int, input_shape: Sequence[int]
    ) -> None:
        super().__init__(architecture, num_classes)
        self.network, self.data_classes, self.input_shape = network, data_classes, torch.Size(input_shape)

    def check_shape(self, shape: Sequence[int]) -> None:
        """Raise if the network was made for inputs of another shape."""
        if tuple(shape) != tuple(self.input_shape):
            raise UsageError(f"Expected inputs of shape {list(self.input_shape)}, but got {list(shape)}.")

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of a batch."""
        return _scores_of(self.network(x)).to(x.dtype)


class ModuleCopies:
    """A factory that returns copies of a module, with its weights.

    The module is copied when the factory is created, so that later changes to the module have no effect.
    """

    def __init__(self, module: nn.Module) -> None:
        network = unwrap(module)
        try:
            self.original = copy.deepcopy(network)
        except Exception as error:
            kind, reason = type(network).__name__, first_line(error)
            raise UsageError(f"{kind} cannot be copied ({reason}); pass a function that creates it.") from error

    def __call__(self) -> nn.Module:
        """Return a copy."""
        return copy.deepcopy(self.original)


def unwrap(module: nn.Module) -> nn.Module:
    """Return the network inside `UserModel`, `torch.compile`, `DataParallel` and `DistributedDataParallel`."""
    if isinstance(module, UserModel):
        return unwrap(module.network)
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return unwrap(module.module)
    compiled = module._modules.get("_orig_mod")  # set by torch.compile, whose class is slow to import
    return module if compiled is None else unwrap(compiled)


def build_user_model(
    factory: Factory, input_shape: Sequence[int], num_classes: int, *, name: str | None = None
) -> UserModel:
    """Create a network on the CPU for inputs of the given shape, and check it on a batch of two zero inputs.

    The check also initializes lazy layers. `name` is the name of the architecture (default: the name of the class).
    """
    made = _call(factory, num_classes=num_classes, input_shape=tuple(input_shape))
    if not isinstance(made, nn.Module):
        raise UsageError(f"Expected the model factory to return an `nn.Module`, but got {kind_of(made)}.")
    network = unwrap(made)
    kind = type(network).__name__
    training = network.training
    try:
        with torch.no_grad():
            scores = _scores_of(network.cpu().eval()(torch.zeros(2, *input_shape)))
    except UsageError:
        raise
    except Exception as error:  # a user's network may raise anything
        raise UsageError(f"{kind} cannot score inputs of shape {list(input_shape)} ({first_line(error)}).") from error
    finally:
        network.train(training)
    if scores.dim() != 2 or len(scores) != 2 or scores.shape[1] < max(2, num_classes):
        raise UsageError(
            f"Expected {kind} to return at least {max(2, num_classes)} scores per input, one per class, but got shape "
            f"{list(scores.shape)} for two inputs."
        )
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise UsageError(f"Expected a model with parameters to train, but {kind} has none.")
    if odd := [key for key, value in network.state_dict().items() if not isinstance(value, Tensor)]:
        raise UsageError(f"Expected `state_dict()` of {kind} to contain tensors only, but entry {odd[0]!r} is not one.")
    classes = scores.shape[1]
    return UserModel(network, name or kind, num_classes=classes, data_classes=num_classes, input_shape=input_shape)


def as_factory(model: Any) -> Factory:
    """Return a factory: `model` itself if it is a function or class, or one that copies it if it is a module."""
    if isinstance(model, nn.Module):
        return ModuleCopies(model)
    if not callable(model):
        raise UsageError(f"Expected `model` to be a module or a function that creates one, but got {kind_of(model)}.")
    return model  # type: ignore[no-any-return]


def _call(factory: Factory, **arguments: Any) -> Any:
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # some built-in callables have no signature
        parameters = {}  # type: ignore[assignment]
    try:
        return factory(**{name: value for name, value in arguments.items() if name in parameters})
    except UsageError:
        raise
    except KeyError as error:  # for example from a function that reads the argument from its **kwargs
        names = " and ".join(f"`{name}`" for name in arguments)
        text = f"there is no {first_line(error)}; a factory receives {names} only as parameters with these names"
        raise UsageError(f"The model cannot be created ({text}).") from error
    except Exception as error:
        raise UsageError(f"The model cannot be created ({first_line(error)}).") from error


def _scores_of(output: Any) -> Tensor:
    scores = getattr(output, "logits", output)
    if not isinstance(scores, Tensor):
        raise UsageError(f"Expected the model to return a tensor of scores, but got {kind_of(scores)}.")
    return scores
