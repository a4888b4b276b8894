"""Style of the pictures in the documentation, each drawn for the light and for the dark pages."""

PAGES = {"": ("#ffffff", "#24292f", "#d0d7de"), "-dark": ("#1e2129", "#d7dae0", "#3d4450")}
"""Colors of background, text and grid lines by suffix of the file name."""


def picture_style(suffix):
    """Return the settings of matplotlib for a picture with this suffix."""
    page, ink, line = PAGES[suffix]
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
