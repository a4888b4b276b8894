"""Names, sizes and corruptions of the known datasets, available without importing torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_FACTS = {
    "mnist": (784, 10, "MNIST"),
    "mnist-mini": (784, 10, "MNIST subset"),
    "fashion_mnist": (784, 10, "Fashion-MNIST"),
    "cifar10": (3072, 10, "CIFAR-10"),
    "cifar100": (3072, 100, "CIFAR-100"),
    "imagenet": (150_528, 1000, "ImageNet"),
}
DIMENSIONS = {name: dimensions for name, (dimensions, _, _) in _FACTS.items()}
"""Number of values per image, by dataset."""

CLASSES = {name: classes for name, (_, classes, _) in _FACTS.items()}
"""Number of classes, by dataset."""

TITLES = {name: title for name, (_, _, title) in _FACTS.items()}
"""Display names, by dataset."""

MOST_CLASSES = 100_000
"""Largest accepted number of classes in a dataset or a results file; ImageNet-21k has 21,841."""

CORRUPTED = tuple(f"{name}-c" for name in DIMENSIONS if name != "imagenet")
"""Names of the corrupted datasets. A name such as `cifar10-c/fog` stands for one corruption of a dataset."""

DOWNLOADABLE = ("mnist", "fashion_mnist", "cifar10", "cifar100", "mnist-c", "cifar10-c", "cifar100-c")
"""Datasets that `smoothcert data get` downloads; `smoothcert.data.download` has their addresses."""

CORRUPTIONS = {
    "mnist-c": (
        *("shot_noise", "impulse_noise", "glass_blur", "motion_blur", "shear", "scale", "rotate", "brightness"),
        *("translate", "stripe", "fog", "spatter", "dotted_line", "zigzag", "canny_edges"),
    ),
    "cifar10-c": (
        *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
        *("snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    ),
}
"""Corruptions of each published corrupted dataset; mACR and mAcc are means over these corruptions."""

REGISTERED: dict[str, Callable[[str], Any]] = {}
"""Loaders of users' datasets by name; `smoothcert.register_dataset` adds them."""

NORMALIZATIONS = ("none", "cifar10", "cifar10-center", "cifar100", "imagenet", "imagenet-center")
"""Names of the normalizations of published networks; `smoothcert.checkpoints.published` defines their values."""


def canonical_name(name: str) -> str:
    """Return the canonical spelling of a dataset name; any other string is returned unchanged.

    >>> canonical_name("Fashion-MNIST"), canonical_name("cifar-10"), canonical_name("./my/folder")
    ('fashion_mnist', 'cifar10', './my/folder')
    >>> canonical_name("CIFAR-10-C/fog")
    'cifar10-c/fog'
    """
    head, slash, corruption = name.partition("/")
    by_plain = {_plain(known): known for known in (*DIMENSIONS, *CORRUPTED)} | {"fmnist": "fashion_mnist"}
    dataset = by_plain.get(_plain(head), head)
    return dataset + slash + corruption if not slash or dataset in CORRUPTED else name


def dimensions_of(name: str | None) -> int | None:
    """Return the number of values per image of a dataset, or None if it is unknown.

    >>> dimensions_of("cifar10"), dimensions_of("mnist-c/fog"), dimensions_of("my/folder")
    (3072, 784, None)
    """
    return DIMENSIONS.get(_clean(name))


def classes_of(name: str | None) -> int | None:
    """Return the number of classes of a dataset, or None if it is unknown."""
    return CLASSES.get(_clean(name))


def _clean(name: str | None) -> str:
    """Return the name of the clean dataset, for example `cifar10` for `cifar10-c/fog`."""
    return (name or "").partition("/")[0].removesuffix("-c")


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
