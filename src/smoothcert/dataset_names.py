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

TITLES = {
    "mnist": "MNIST",
    "mnist-mini": "MNIST, an excerpt",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "imagenet": "ImageNet",
}
"""What people call them."""

CORRUPTED = tuple(f"{name}-c" for name in DIMENSIONS if name != "imagenet")
"""The data sets of corrupted images: one array a corruption, named as in cifar10-c/fog."""

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
"""The corruptions over which the two published sets take their means."""


def canonical_name(name: str) -> str:
    """Bring the usual spellings of a data set to the one used here; anything else stays as it is.

    >>> canonical_name("Fashion-MNIST"), canonical_name("cifar-10"), canonical_name("./my/folder")
    ('fashion_mnist', 'cifar10', './my/folder')
    >>> canonical_name("CIFAR-10-C/fog")
    'cifar10-c/fog'
    """
    head, slash, corruption = name.partition("/")
    by_plain = {_plain(known): known for known in (*DIMENSIONS, *CORRUPTED)} | {"fmnist": "fashion_mnist"}
    found = by_plain.get(_plain(head), head)
    return found + slash + corruption if not slash or found in CORRUPTED else name


def dimensions_of(name: str | None) -> int | None:
    """Return how many numbers an image of a data set has, where it is one of those known here.

    >>> dimensions_of("cifar10"), dimensions_of("mnist-c/fog"), dimensions_of("my/folder")
    (3072, 784, None)
    """
    return DIMENSIONS.get(_clean(name))


def classes_of(name: str | None) -> int | None:
    """Return how many classes a data set has, where it is one of those known here."""
    return CLASSES.get(_clean(name))


def _clean(name: str | None) -> str:
    """Return the data set whose images a corrupted one has."""
    return (name or "").partition("/")[0].removesuffix("-c")


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
