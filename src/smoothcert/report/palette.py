"""Colors of methods and heat maps, shared by the report page and the figures.

People with any of the common types of color blindness can tell the colors apart, in the light and in the dark scheme.
"""

from __future__ import annotations

METHOD_COLORS = {
    "catrs": 0,
    "gaussian": 1,
    "smoothadv": 2,
    "consistency": 3,
    "smoothmix": 4,
    "macer": 5,
    "stability": 6,
}
"""Index of each method's color in `LIGHT` and `DARK`; the methods compared most often have the strongest colors."""

LIGHT = ("#0950c3", "#35312e", "#961500", "#008645", "#750d70", "#bc8d00", "#2198ff", "#958d9e")
"""Colors on a white background. The last one is for methods without a color of their own."""

DARK = ("#3989fb", "#f6f1e2", "#d55629", "#51e37f", "#d3a3c4", "#ffa000", "#afaeff", "#7d7b6a")
"""Colors of the same methods on the dark background of the report page."""

HEAT = {"light": ("#f2f6fb", "#0b62b8"), "dark": ("#1b2530", "#3d8fe0")}
"""Colors of the smallest and the largest value of a heat map."""


def css_variables() -> str:
    """Return the colors as CSS variables, for the light and the dark scheme."""
    light, dark = (
        "".join(f"--run-{slot}: {color};" for slot, color in enumerate(colors))
        + f"--heat-low: {HEAT[scheme][0]};--heat-high: {HEAT[scheme][1]};"
        for scheme, colors in (("light", LIGHT), ("dark", DARK))
    )
    return f":root {{{light}}}\n@media screen and (prefers-color-scheme: dark) {{:root {{{dark}}}}}\n"
