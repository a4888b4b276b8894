"""Render the report page, one HTML file with styles, scripts and data, using jinja2 (from the extra `report`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from smoothcert import __version__
from smoothcert.errors import SmoothcertError
from smoothcert.report.corrupted.results import CorruptedResults
from smoothcert.report.page.bundle import bundle
from smoothcert.report.page.content import build_content, without_folders
from smoothcert.report.page.corruption_message import without_clean_run
from smoothcert.report.page.gallery import Load
from smoothcert.report.page.heatmap import HeatMapValues
from smoothcert.report.page.phrases import SIGMA, at_sigma, listed
from smoothcert.report.page.run_history import provenance
from smoothcert.report.palette import css_variables
from smoothcert.report.sources import Run
from smoothcert.report.tables.formats import to_text
from smoothcert.report.tables.table import Table

_ASSETS = Path(__file__).with_name("assets")
_STYLES = ("page", "panels", "gallery", "print")


def render_page(
    runs: Sequence[Run],
    table: Table,
    *,
    title: str = "Certified robustness",
    load: Load | None = None,
    corruptions: Mapping[str, HeatMapValues] | None = None,
    networks: Sequence[CorruptedResults] = (),
) -> str:
    """Return the HTML page of several runs.

    Args:
        runs: The runs, as returned by `read_runs`.
        table: The table of these runs.
        title: Title of the page.
        load: Function that returns the test images of a dataset, given its name; None omits the images from the page.
        corruptions: Values of heat maps by title, as returned by `corruption_maps`.
        networks: Results on corrupted images. They come first if there are at least half as many networks as runs.

    Raises:
        SmoothcertError: If jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise SmoothcertError("The HTML report needs jinja2: pip install 'smoothcert[report]'.") from None
    by_entry = {id(run.entry): run for run in runs}
    ordered = [by_entry[id(row.entry)] for row in table.rows]
    content = build_content(ordered, table, load, corruptions or {}, networks)
    today = datetime.now(UTC)
    environment = Environment(loader=FileSystemLoader(_ASSETS), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("page.html.j2").render(
        title=title,
        summary=_summary(content["runs"], without_clean_run(networks, [run.entry for run in runs])),
        date=f"{today.day} {today:%B %Y}",
        version=__version__,
        plain=to_text(table),
        style=Markup(css_variables() + "".join(_read(f"css/{name}.css") for name in _STYLES)),
        scripts=Markup(bundle(_ASSETS / "js")),
        content=Markup(to_script(content)),
        provenance=[
            without_folders(provenance(run, _about(described, several=table.several_sets)))
            for run, described in zip(ordered, content["runs"], strict=True)
        ],
    )


def to_script(content: Any) -> str:
    """Return JSON that is safe inside a script element: no text can end the element or open a comment."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _about(run: Mapping[str, Any], *, several: bool) -> str:
    return " · ".join(part for part in (at_sigma([run["sigma"]]), run["datasetName"] if several else "") if part)


def _summary(runs: Sequence[Mapping[str, Any]], absent: Mapping[str, Sequence[str]]) -> str:
    """Return the subtitle: runs, datasets, noise levels, image counts, and networks without results on clean images."""
    parts = [f"{len(runs)} run{'s' if len(runs) != 1 else ''}"]
    parts += [", ".join(dict.fromkeys(run["datasetName"] for run in runs))]
    sigmas = sorted({run["sigma"] for run in runs if run["sigma"]})
    parts += [f"{SIGMA} " + ", ".join(f"{sigma:.2f}" for sigma in sigmas)] if sigmas else []
    counts = sorted({run["images"] for run in runs})
    few = listed([f"{count:,}" for count in counts], "or")
    images = few if len(counts) < 4 else f"{counts[0]:,} to {counts[-1]:,}"
    names = [name for group in absent.values() for name in group]
    networks = f"{len(names)} network{'s' if len(names) != 1 else ''}"
    plus = [f"plus {networks} with results on corrupted images only: {', '.join(names)}"] if names else []
    return " · ".join([part for part in [*parts, f"{images} images each", *plus] if part])


def _read(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
