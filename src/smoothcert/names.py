"""Names that are known without loading anything: data sets and their spellings."""

from __future__ import annotations

DIMENSIONS = {
    "mnist": 784,
    "mnist-mini": 784,
    "fashion_mnist": 784,
    "cifar10": 3072,
    "cifar100": 3072,
    "imagenet": 150_528,
}
"""The data sets, and how many numbers one of their images has."""

CLASSES = {"mnist": 10, "mnist-mini": 10, "fashion_mnist": 10, "cifar10": 10, "cifar100": 100, "imagenet": 1000}
"""How many classes each of them has."""


def canonical_name(name: str) -> str:
    """Bring the usual spellings of a data set to the one used here; anything else stays as it is.

    >>> canonical_name("Fashion-MNIST"), canonical_name("cifar-10"), canonical_name("./my/folder")
    ('fashion_mnist', 'cifar10', './my/folder')
    """
    plain = _plain(name)
    by_plain = {_plain(known): known for known in DIMENSIONS} | {"fmnist": "fashion_mnist"}
    return by_plain.get(plain, name)


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
