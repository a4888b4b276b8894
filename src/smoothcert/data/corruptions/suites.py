"""The corruptions of MNIST-C and CIFAR-10-C with their published settings at each severity.

MNIST-C: Mu and Gilmer, 2019 (the static set, one severity each). CIFAR-10-C: Hendrycks and Dietterich, 2019, with the
constants for 32x32 images. Both have additional corruptions for development; means over corruptions leave these out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smoothcert.data.corruptions import blur, drawing, geometry, noise, weather
from smoothcert.data.corruptions.noise import Image
from smoothcert.dataset_names import CORRUPTIONS
from smoothcert.errors import UsageError, unknown_name

Corruption = tuple[Callable[..., Image], Sequence[tuple[Any, ...]]]
"""A function and its arguments at each severity, from the mildest to the worst."""


@dataclass(frozen=True)
class Suite:
    """Corruptions by name, of which means over corruptions include those in `counted`.

    If `rounded`, values are rounded to bytes; otherwise they are truncated, as in CIFAR-10-C.
    """

    counted: tuple[str, ...]
    corruptions: Mapping[str, Corruption]
    severities: int
    rounded: bool

    def find(self, name: str) -> Corruption:
        """Return the function and the settings of a corruption."""
        if name not in self.corruptions:
            raise unknown_name("corruption", name, self.corruptions)
        return self.corruptions[name]


def _each(*values: float) -> list[tuple[float]]:
    return [(value,) for value in values]


_MNIST_C = Suite(
    CORRUPTIONS["mnist-c"],
    {
        "shot_noise": (noise.shot_noise, _each(3)),
        "impulse_noise": (noise.impulse_noise, _each(0.17)),
        "glass_blur": (blur.glass_blur, [(0.7, 1, 2, 0.5)]),
        "motion_blur": (blur.motion_blur, [(10, 3)]),
        "shear": (geometry.shear, _each(0.4)),
        "scale": (geometry.scale, _each(0.7)),
        "rotate": (geometry.rotate, _each(0.4)),
        "brightness": (weather.brightness, _each(0.5)),
        "translate": (geometry.translate, _each(3)),
        "stripe": (drawing.stripe, [()]),
        "fog": (weather.fog, [(3.0, 1.4, 256)]),
        "spatter": (weather.spatter, [(0.65, 0.3, 1, 0.65, 1.5)]),
        "dotted_line": (drawing.dotted_line, [()]),
        "zigzag": (drawing.zigzag, [()]),
        "canny_edges": (drawing.canny_edges, [()]),
        # held out for development
        "gaussian_noise": (noise.gaussian_noise, _each(0.38)),
        "speckle_noise": (noise.speckle_noise, _each(0.6)),
        "gaussian_blur": (blur.gaussian_blur, _each(2)),
        "zoom_blur": (blur.zoom_blur, [(1.3, 0.03)]),
        "contrast": (weather.contrast, _each(0.1)),
        "jpeg_compression": (drawing.jpeg_compression, _each(7)),
        "pixelate": (drawing.pixelate, _each(0.4)),
        "quantize": (drawing.quantize, _each(1)),
        "line": (drawing.line, [()]),
        "inverse": (drawing.inverse, [()]),
    },
    severities=1,
    rounded=True,
)

_CIFAR10_C = Suite(
    CORRUPTIONS["cifar10-c"],
    {
        "gaussian_noise": (noise.gaussian_noise, _each(0.04, 0.06, 0.08, 0.09, 0.10)),
        "shot_noise": (noise.shot_noise, _each(500, 250, 100, 75, 50)),
        "impulse_noise": (noise.impulse_noise, _each(0.01, 0.02, 0.03, 0.05, 0.07)),
        "defocus_blur": (blur.defocus_blur, [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)]),
        "glass_blur": (
            blur.glass_blur,
            [(0.05, 1, 1, 1.0), (0.25, 1, 1, 1.0), (0.4, 1, 1, 1.0), (0.25, 1, 2, 1.0), (0.4, 1, 2, 1.0)],
        ),
        "motion_blur": (blur.motion_blur, [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)]),
        # The first two severities have an additional step, due to rounding in the published generator.
        "zoom_blur": (blur.zoom_blur, [(1.06, 0.01), (1.11, 0.01), (1.15, 0.01), (1.20, 0.01), (1.25, 0.01)]),
        "snow": (
            weather.snow,
            [
                (0.10, 0.2, 1.00, 0.60, 8, 3, 0.95),
                (0.10, 0.2, 1.00, 0.50, 10, 4, 0.90),
                (0.15, 0.3, 1.75, 0.55, 10, 4, 0.90),
                (0.25, 0.3, 2.25, 0.60, 12, 6, 0.85),
                (0.30, 0.3, 1.25, 0.65, 14, 12, 0.80),
            ],
        ),
        "frost": (weather.frost, [(1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)]),
        "fog": (weather.fog, [(0.2, 3, 32), (0.5, 3, 32), (0.75, 2.5, 32), (1, 2, 32), (1.5, 1.75, 32)]),
        "brightness": (weather.brightness, _each(0.05, 0.1, 0.15, 0.2, 0.3)),
        "contrast": (weather.contrast, _each(0.75, 0.5, 0.4, 0.3, 0.15)),
        "elastic_transform": (
            geometry.elastic_transform,
            [(0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)],
        ),
        "pixelate": (drawing.pixelate, _each(0.95, 0.9, 0.85, 0.75, 0.65)),
        "jpeg_compression": (drawing.jpeg_compression, _each(80, 65, 58, 50, 40)),
        # held out for development
        "speckle_noise": (noise.speckle_noise, _each(0.06, 0.1, 0.12, 0.16, 0.2)),
        "gaussian_blur": (blur.gaussian_blur, _each(0.4, 0.6, 0.7, 0.8, 1)),
        "saturate": (weather.saturate, [(0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)]),
    },
    severities=5,
    rounded=False,
)


def suite_for(channels: int) -> Suite:
    """Return the suite for a number of channels: MNIST-C for gray images, CIFAR-10-C for color images."""
    if channels not in (1, 3):
        raise UsageError(f"Expected images with 1 or 3 channels, but got {channels}.")
    return _MNIST_C if channels == 1 else _CIFAR10_C
