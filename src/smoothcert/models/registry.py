"""Networks by name: `create_model` and `list_models`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatch

from torch import nn

from smoothcert.errors import UsageError, unknown_name
from smoothcert.model_names import ARCHITECTURES
from smoothcert.models.layers import Classifier, Normalize
from smoothcert.models.lenet import LeNet
from smoothcert.models.resnet import cifar_resnet, resnet50


def list_models(pattern: str = "*") -> list[str]:
    """Return the names of the networks that match a pattern.

    Args:
        pattern: A glob pattern, such as `*resnet*`.

    Returns:
        The names; `create_model` also accepts `cifar_resnet<depth>` with any depth 6n + 2.

    Example:
        >>> list_models("*resnet*")
        ['cifar_resnet20', 'cifar_resnet110', 'resnet50']
    """
    return [name for name in ARCHITECTURES if fnmatch(name, pattern)]


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
        name: A name from `list_models`, or `cifar_resnet<depth>`.
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
    if num_classes is not None and num_classes < 1:
        raise UsageError(f"Expected `num_classes` to be at least 1, but got {num_classes}.")
    channels = in_channels or (1 if name == "lenet" else 3)
    normalize = Normalize(mean or (0.0,) * channels, std or (1.0,) * channels)
    if len(normalize.mean) not in (1, channels):
        raise UsageError(f"Expected `mean` with {channels} values, one per channel, but got {len(normalize.mean)}.")
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
            raise UsageError(f"Expected the depth of {name} to be 6n + 2 (8, 14, 20, ..., 110), but got {depth}.")
        return cifar_resnet(depth, num_classes, channels)
    raise unknown_name("model", name, ARCHITECTURES)
