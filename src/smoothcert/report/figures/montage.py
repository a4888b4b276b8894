"""Draw an image under each corruption, as in figures 7 and 8 of the CAT-RS paper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import UsageError
from smoothcert.report.figures.canvas import new_figure

if TYPE_CHECKING:
    from smoothcert.data import ImageData
    from smoothcert.data.corrupted import CorruptedSet

Picture = NDArray[np.uint8]
"""An image as uint8 [height, width, channels]."""


def corruption_pictures(
    corrupted: CorruptedSet, image: int, severity: int = 3, data_dir: str | Path | None = None
) -> dict[str, Picture]:
    """Return one image with each available corruption, by name of the corruption; the clean image, if any, is first."""
    if not corrupted.available:
        raise UsageError(f"{corrupted.folder} contains none of the corruptions {', '.join(corrupted.corruptions)}.")
    clean = corrupted.find_clean(data_dir)
    pictures = {"clean": _picture(clean, image)} if clean and image < len(clean) else {}
    for name in corrupted.available:
        data = corrupted.load(name)
        rows = len(data) // data.severities
        if not 0 <= image < rows:
            raise UsageError(f"Expected `image` to be from 0 to {rows - 1}, but got {image}.")
        if not 1 <= severity <= 5:
            raise UsageError(f"Expected `severity` to be from 1 to 5, but got {severity}.")
        pictures[name] = _picture(data, (min(severity, data.severities) - 1) * rows + image)
    return pictures


def _picture(data: ImageData, row: int) -> Picture:
    return np.moveaxis(np.asarray(data.subset([row]).images)[0], 0, -1)


def draw_montage(pictures: Mapping[str, Picture], columns: int = 4) -> Any:
    """Draw images in a grid, each below its name."""
    rows = -(-len(pictures) // columns)
    figure = new_figure(1.25 * columns, 1.45 * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(pictures) :]:
        axes.set_axis_off()
    for axes, (name, picture) in zip(grid.flat, pictures.items(), strict=False):
        axes.set(xticks=[], yticks=[])
        for edge in axes.spines.values():
            edge.set(color="#bbbbbb", linewidth=0.5)
        axes.imshow(picture.squeeze(), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        axes.set_title(name.replace("_", " "), fontsize=8, pad=3)
    return figure
