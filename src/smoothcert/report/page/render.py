"""The page's one file: template, style, scripts and content put together with jinja2 (the extra `report`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from smoothcert import __version__
from smoothcert.errors import SmoothcertError
from smoothcert.report.page.background import provenance
from smoothcert.report.page.content import build_content
from smoothcert.report.page.heatmap import Corruptions
from smoothcert.report.page.pictures import Load
from smoothcert.report.sources import Run
from smoothcert.report.tables.formats import to_text
from smoothcert.report.tables.table import Table

_ASSETS = Path(__file__).with_name("assets")
# Later files use what earlier ones define; all share one function's scope.
_SCRIPTS = (
    "dom", "statistics", "state", "palette", "plot", "filters", "legend", "curves", "table", "copy", "confidence",
    "compare", "scatter", "tradeoff", "corruption", "training", "gallery", "detail", "main",
)  # fmt: skip
_STYLES = ("page", "panels", "gallery", "print")


def render_page(
    runs: Sequence[Run],
    table: Table,
    *,
    title: str = "Certified robustness",
    load: Load | None = None,
    corruptions: Mapping[str, Corruptions] | None = None,
) -> str:
    """Return the page of several runs and their table.

    `load` finds the images, `corruptions` are heat maps by title.
    """
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise SmoothcertError("The page needs jinja2: pip install 'smoothcert[report]'.") from None
    by_entry = {id(run.entry): run for run in runs}
    ordered = [by_entry[id(row.entry)] for row in table.rows]
    content = build_content(ordered, table, load=load, corruptions=corruptions)
    today = datetime.now(UTC)
    environment = Environment(loader=FileSystemLoader(_ASSETS), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("page.html.j2").render(
        title=title,
        summary=_summary(content["runs"]),
        made=f"{today.day} {today:%B %Y}",
        version=__version__,
        plain=to_text(table),
        style=Markup(_read("vendor/uPlot.min.css") + "".join(_read(f"css/{name}.css") for name in _STYLES)),
        library=Markup(_read("vendor/uPlot.iife.min.js")),
        scripts=Markup("\n".join(_read(f"js/{name}.js") for name in _SCRIPTS)),
        content=Markup(to_script(content)),
        provenance=[
            provenance(run, _about(described, several=table.several_sets))
            for run, described in zip(ordered, content["runs"], strict=True)
        ],
    )


def to_script(content: Any) -> str:
    """Write JSON that can stand inside a script element: no text in it can end the element or open a comment."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _about(run: Mapping[str, Any], *, several: bool) -> str:
    """Say what a run's name leaves open, as the page's scripts do."""
    sigma = [f"\N{GREEK SMALL LETTER SIGMA} {run['sigma']:.2f}"] if run["sigma"] else []
    return " · ".join([*sigma, *([run["set"]] if several else [])])


def _summary(runs: Sequence[Mapping[str, Any]]) -> str:
    """Say in a line what the page holds."""
    parts = [f"{len(runs)} run{'s' if len(runs) != 1 else ''}"]
    parts += [", ".join(dict.fromkeys(run["set"] for run in runs))]
    noises = sorted({run["sigma"] for run in runs if run["sigma"]})
    parts += ["\N{GREEK SMALL LETTER SIGMA} " + ", ".join(f"{sigma:.2f}" for sigma in noises)] if noises else []
    counts = sorted({run["images"] for run in runs})
    many = " or ".join(f"{count:,}" for count in counts) if len(counts) < 4 else f"{counts[0]:,} to {counts[-1]:,}"
    return " · ".join([part for part in [*parts, f"{many} images each"] if part])


def _read(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
