"""Corruptions: fog, frost, snow, spatter, brightness, contrast and saturation."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import ndimage

from smoothcert.data.corruptions.blur import cut_to_bytes, smear, zoom
from smoothcert.data.corruptions.noise import Image, as_floats
from smoothcert.errors import SmoothcertError

_PHOTOGRAPHS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
_GRAY = np.array([0.299, 0.587, 0.114])  # weights of red, green and blue in a gray value


def fog(image: Image, random: Generator, thickness: float, decay: float, size: int) -> Image:
    """Overlay a cloud cut from a fractal with sides of at least `size` pixels, and rescale to the original range."""
    height, width, _ = image.shape
    size = max(size, 1 << (max(height, width) - 1).bit_length())
    cloud = plasma(size, decay, random)[:height, :width, None]
    brightest = image.max()
    return as_floats((image + thickness * cloud) * brightest / (brightest + thickness))


def plasma(size: int, decay: float, random: Generator) -> NDArray[np.float64]:
    """Return a fractal height map in [0, 1] by midpoint displacement on a torus; `size` is a power of two.

    The largest displacement is the square of an amplitude that starts at 100 and is divided by `decay` whenever the
    step is halved.
    """
    heights = np.zeros((size, size))
    amplitude, step = 100.0, size

    def displaced(total: NDArray[np.float64]) -> NDArray[np.float64]:
        return total / 4 + random.uniform(-1, 1, total.shape) * amplitude**2

    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        rights = corners + np.roll(corners, -1, axis=1)
        heights[half::step, half::step] = displaced(rights + np.roll(rights, -1, axis=0))
        centers = heights[half::step, half::step]
        heights[::step, half::step] = displaced(rights + centers + np.roll(centers, 1, axis=0))
        downs = corners + np.roll(corners, -1, axis=0)
        heights[half::step, ::step] = displaced(downs + centers + np.roll(centers, 1, axis=1))
        amplitude, step = amplitude / decay, half
    heights -= heights.min()
    return as_floats(heights / heights.max())


def frost(image: Image, random: Generator, image_share: float, frost_share: float) -> Image:
    """Blend the image with a random piece of one of five photographs of frost."""
    photograph = _photographs()[random.integers(len(_PHOTOGRAPHS))]
    height, width, channels = image.shape
    top, left = (random.integers(0, photograph.shape[axis] - image.shape[axis]) for axis in (0, 1))
    piece = photograph[top : top + height, left : left + width]
    return image_share * image + frost_share * (piece if channels == 3 else piece @ _GRAY[:, None])


@cache
def _photographs() -> tuple[Image, ...]:
    """Read the photographs of frost in the package `imagecorruptions`, reduced to a fifth of their width and height."""
    from PIL import Image as Pillow

    package = importlib.util.find_spec("imagecorruptions")
    folder = Path(next(iter((package and package.submodule_search_locations) or []), "")) / "frost"
    if package is None or not all((folder / name).is_file() for name in _PHOTOGRAPHS):
        raise SmoothcertError(
            "Frost needs the photographs in the package imagecorruptions: run "
            "`pip install --no-deps imagecorruptions` (its dependencies are not needed), or omit frost."
        )
    images = (np.asarray(Pillow.open(folder / name).convert("RGB")) for name in _PHOTOGRAPHS)
    return tuple(pixels[2::5, 2::5] / 255 for pixels in images)


def snow(
    image: Image,
    random: Generator,
    mean: float,
    spread: float,
    size: float,
    threshold: float,
    radius: int,
    sigma: float,
    share: float,
) -> Image:
    """Make the image paler and add snowflakes: noise above a threshold, magnified and motion-blurred."""
    flakes = zoom(random.normal(mean, spread, size=(*image.shape[:2], 1)), size)
    flakes = cut_to_bytes(np.clip(np.where(flakes < threshold, 0.0, flakes), 0, 1))
    flakes = smear(flakes, radius, sigma, random.uniform(-135, -45))
    gray = image @ _GRAY[:, None] if image.shape[2] == 3 else image
    pale = share * image + (1 - share) * np.maximum(image, gray * 1.5 + 0.5)
    return pale + flakes + np.rot90(flakes, 2)


def spatter(
    image: Image, random: Generator, mean: float, spread: float, sigma: float, threshold: float, softness: float
) -> Image:
    """Add drops of mud."""
    liquid = ndimage.gaussian_filter(random.normal(mean, spread, size=image.shape[:2]), sigma, mode="nearest")
    drops = ndimage.gaussian_filter((liquid > threshold).astype(np.float64), softness, mode="nearest")[..., None]
    drops = np.where(drops < 0.8, 0.0, drops)
    return image * (1 - drops) + drops * 63 / 255


def brightness(image: Image, random: Generator, more: float) -> Image:
    """Increase the brightness of each pixel, keeping its hue and saturation."""
    value = image.max(axis=2, keepdims=True)
    brighter = np.minimum(value + more, 1.0)
    return as_floats(np.where(value > 0, image * brighter / np.where(value > 0, value, 1.0), brighter))


def contrast(image: Image, random: Generator, share: float) -> Image:
    """Reduce the contrast by moving all values toward their mean."""
    mean = image.mean(axis=(0, 1), keepdims=True)
    return as_floats(mean + share * (image - mean))


def saturate(image: Image, random: Generator, factor: float, more: float) -> Image:
    """Change the saturation of each pixel, keeping its hue and brightness."""
    value, least = image.max(axis=2, keepdims=True), image.min(axis=2, keepdims=True)
    saturation = (value - least) / np.where(value > 0, value, 1.0)
    wanted = np.clip(saturation * factor + more, 0, 1)
    # Gray pixels are treated as red, so that only their green and blue decrease.
    hue = np.where(value > least, (value - image) / np.where(value > least, value - least, 1.0), [0.0, 1.0, 1.0])
    return as_floats(value * (1 - wanted * hue))
