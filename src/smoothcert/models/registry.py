"""Networks by name: `create_model`, `list_models` and `register_model`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatch

from torch import nn

from smoothcert.errors import UsageError, kind_of, quote, takes, unknown_name
from smoothcert.model_names import ARCHITECTURES, REGISTERED, is_bundled
from smoothcert.models.layers import Classifier, NamedModel, Normalize
from smoothcert.models.lenet import LeNet
from smoothcert.models.resnet import cifar_resnet, resnet50
from smoothcert.models.user_model import Factory, build_user_model

_LARGEST = 10_000_000  # largest number of classes or channels


@takes(pattern=str)
def list_models(pattern: str = "*") -> list[str]:
    """Return the names of the networks that match a pattern.

    Args:
        pattern: A glob pattern, such as `*resnet*`.

    Returns:
        The names of the package's networks, which `create_model` creates, then the names of registered networks.

    Example:
        >>> list_models("*resnet*")
        ['cifar_resnet20', 'cifar_resnet110', 'resnet50']
    """
    return [name for name in (*ARCHITECTURES, *REGISTERED) if fnmatch(name, pattern)]


@takes(name=str)
def register_model(name: str, factory: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Register a network of your own under a name, for this process.

    Recipes and `smoothcert train --architecture NAME` can then train it, and its checkpoints can be loaded and
    certified. For the command line, put the call into a Python file and pass this file as `--plugin FILE`.

    Args:
        name: The name of the architecture: letters, digits, "-", "_" and ".".
        factory: A class or function that returns an `nn.Module`, which maps inputs in [0, 1] to scores. The factory may
            have parameters `num_classes` and `input_shape`, which are taken from the dataset.

    Returns:
        The factory.

    Raises:
        UsageError: If the name is taken or invalid, or `factory` is not a function or class.

    Example:
        >>> _ = register_model("mlp", lambda num_classes: nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes)))
        >>> list_models("mlp")
        ['mlp']
        >>> del REGISTERED["mlp"]
    """
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise UsageError(f"Expected `name` to consist of letters, digits, '-', '_' and '.', but got {name!r}.")
    if not callable(factory) or isinstance(factory, nn.Module):
        raise UsageError(
            f"Expected `factory` to be a function or class that creates a module, but got {kind_of(factory)}."
        )
    known = REGISTERED.get(name, factory)
    places = [(getattr(f, "__module__", None), getattr(f, "__qualname__", f)) for f in (known, factory)]
    if is_bundled(name) or places[0] != places[1]:  # the same place if a plugin is loaded twice
        raise UsageError(f"There is already a model {name!r}; choose another name.")
    REGISTERED[name] = factory
    return factory


def find_factory(name: str) -> Factory | None:
    """Return the factory of a registered network, or None for a network of the package."""
    if name not in REGISTERED and not is_bundled(name):
        raise unknown_name("model", name, [*ARCHITECTURES, *REGISTERED])
    return REGISTERED.get(name)


def build_model(
    name: str,
    input_shape: Sequence[int],
    num_classes: int,
    *,
    factory: Factory | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> NamedModel:
    """Create a network for inputs of the given shape, from `factory`, a registered factory or the package.

    `mean` and `std` are for the package's networks only. Users' networks receive unnormalized inputs.
    """
    factory = factory or find_factory(name)
    if factory is not None:
        return build_user_model(factory, input_shape, num_classes, name=name)
    if len(input_shape) != 3:
        shape = list(input_shape)
        raise UsageError(f"Expected inputs of shape [channels, height, width] for {name}, but got {shape}.")
    return create_model(name, num_classes, in_channels=input_shape[0], mean=mean, std=std)


@takes(name=str, num_classes=(int, type(None)), in_channels=(int, type(None)))
def create_model(
    name: str,
    num_classes: int | None = None,
    *,
    in_channels: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Classifier:
    """Create a network with random weights.

    Args:
        name: `lenet`, `resnet50`, or `cifar_resnet<depth>` with a depth of 6n + 2, such as 20 or 110. To create a
            registered network, call its factory.
        num_classes: The number of classes; default: 1000 for `resnet50`, else 10.
        in_channels: The number of input channels; default: 1 for `lenet`, else 3.
        mean: The mean per channel that inputs are normalized with; default: no normalization.
        std: The standard deviation per channel.

    Returns:
        A classifier that takes images in [0, 1].

    Raises:
        UsageError: If there is no such network, or a value is invalid.

    Example:
        >>> model = create_model("cifar_resnet20", num_classes=10)
        >>> sum(parameter.numel() for parameter in model.parameters())
        272474
    """
    for argument, number in (("num_classes", num_classes), ("in_channels", in_channels)):
        if number is not None and not 1 <= number <= _LARGEST:
            raise UsageError(f"Expected `{argument}` to be an int from 1 to {_LARGEST:,}, but got {quote(number)}.")
    channels = in_channels or (1 if name == "lenet" else 3)
    normalize = Normalize((0.0,) * channels if mean is None else mean, (1.0,) * channels if std is None else std)
    if len(normalize.mean) not in (1, channels):
        given = len(normalize.mean)
        raise UsageError(f"Expected `mean` and `std` to have one value per channel ({channels}), but got {given}.")
    classes = num_classes or (1000 if name == "resnet50" else 10)
    network = _network(name, classes, channels)
    size = (28, 28) if name == "lenet" else None
    return Classifier(normalize, network, name, num_classes=classes, in_channels=channels, image_size=size)


def _network(name: str, num_classes: int, channels: int) -> nn.Module:
    if name == "lenet":
        return LeNet(num_classes, channels)
    if name == "resnet50":
        return resnet50(num_classes, channels)
    if match := re.fullmatch(r"cifar_resnet(\d+)", name):
        depth = int(match[1])
        if depth < 8 or (depth - 2) % 6:
            raise UsageError(f"Expected the depth of {name} to be 6n + 2 (8, 14, 20, ...), but got {depth}.")
        return cifar_resnet(depth, num_classes, channels)
    if name in REGISTERED:
        raise UsageError(f"{name} is a registered model; call its own factory to create it.")
    raise unknown_name("model", name, ARCHITECTURES)
