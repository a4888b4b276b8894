"""Draw the pictures of the documentation, each for the light and for the dark pages."""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt

PAGES = {"": ("#ffffff", "#24292f", "#d0d7de"), "-dark": ("#1e2129", "#d7dae0", "#3d4450")}
"""Colors of background, text and grid lines by suffix of the file name."""


def save_pictures(name, draw):
    """Save both variants of a picture in the folder that the command line names, by default docs/images.

    `draw` returns the figure, given the suffix of its file name and the color of its text.
    """
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "docs/images"
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, (page, ink, line) in PAGES.items():
        with plt.rc_context(_settings(page, ink, line)):
            figure = draw(suffix, ink)
            figure.savefig(folder / f"{name}{suffix}.svg", metadata={"Date": None})
            plt.close(figure)


def _settings(page, ink, line):
    return {
        "font.family": "sans-serif",
        "font.size": 10.5,
        "svg.hashsalt": "smoothcert",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.color": line,
        "legend.frameon": False,
        **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), page),
        **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor"), ink),
    }
