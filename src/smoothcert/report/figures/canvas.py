"""Create and save matplotlib figures; PDF, SVG and PNG files are reproducible byte for byte."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smoothcert.errors import SmoothcertError, unknown_name
from smoothcert.runtime.atomic_files import replacing

STYLE: dict[Any, Any] = {"svg.hashsalt": "smoothcert", "pdf.fonttype": 42}
STYLE |= {"font.size": 9.0, "axes.titlesize": 9.0, "legend.fontsize": 7.5}
_NO_DATE: Mapping[str, dict[str, Any]] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {}}


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure; the size is in inches."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise SmoothcertError("Figures need matplotlib: pip install 'smoothcert[plots]'.") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_all(figure: Any, stem: Path) -> list[Path]:
    """Write a figure as PDF, SVG and PNG, named after `stem`; return the paths."""
    paths = [stem.with_name(stem.name + suffix) for suffix in (".pdf", ".svg", ".png")]
    for path in paths:
        save_figure(figure, path)
    return paths


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure to a file of any type that matplotlib supports."""
    import matplotlib

    known = figure.canvas.get_supported_filetypes()
    if path.suffix.lstrip(".") not in known:
        raise unknown_name("image format", path.suffix, [f".{kind}" for kind in known])
    image = io.BytesIO()  # in memory first, since matplotlib raises many different errors on a full disk
    with matplotlib.rc_context(STYLE):
        figure.savefig(image, dpi=200, format=path.suffix.lstrip("."), metadata=_NO_DATE.get(path.suffix))
    with replacing(path) as part:
        part.write_bytes(image.getvalue())
