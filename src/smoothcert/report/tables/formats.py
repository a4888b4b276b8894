"""A table as plain text, Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from smoothcert.dataset_names import TITLES
from smoothcert.report.tables.table import Row, Table, to_json


@dataclass(frozen=True)
class Cell:
    """A text, and whether it is the best or second of its column."""

    text: str
    mark: str = ""


Grid = list[list[Cell]]
_WORDS = ("data set", "method")  # columns of words, which begin at their left end


@dataclass(frozen=True)
class Sheet:
    """What is printed of a table: column titles and groups of lines."""

    titles: list[str]
    groups: list[Grid]

    @property
    def lines(self) -> Grid:
        """The lines of all groups."""
        return [line for group in self.groups for line in group]


@dataclass(frozen=True)
class Annex:
    """A table below the main one: as it is printed, and as plain values for JSON."""

    sheet: Sheet
    values: list[dict[str, Any]]


def sheet(table: Table | Sheet) -> Sheet:
    """Return what is printed of a table."""
    return table if isinstance(table, Sheet) else Sheet(header(table), groups(table))


def header(table: Table) -> list[str]:
    """Return the column titles."""
    radii = [f"{radius:.2f}" for radius in table.radii]
    cubes = [f"l_inf {_fraction(epsilon)}" for epsilon in table.linf]
    difference = [f"ACR - {table.baseline}"] if table.baseline else []
    dataset = ["data set"] if table.several_sets else []
    return [*dataset, "sigma", "method", "ACR", "+-", *radii, *cubes, *difference, "images", "n"]


def groups(table: Table) -> list[Grid]:
    """Return the cells of every group of rows; the paper's numbers, where asked for, on a line of their own."""
    return [[line for row in group for line in _lines(row, table)] for group in table.groups()]


def _lines(row: Row, table: Table) -> Grid:
    entry = row.entry
    cells = [
        *([Cell(dataset_title(entry.dataset))] if table.several_sets else []),
        Cell(f"{entry.sigma:.2f}" if entry.sigma else "?"),
        Cell(entry.title),
        Cell(f"{row.acr.value:.3f}", row.marks.get("acr", "")),
        Cell("-" if math.isnan(row.acr.standard_error) else f"{row.acr.standard_error:.3f}"),
        *(Cell(f"{value:.1f}", row.marks.get(f"r{i}", "")) for i, value in enumerate(row.accuracy)),
        *(Cell(f"{value:.1f}", row.marks.get(f"linf{i}", "")) for i, value in enumerate(row.linf)),
    ]
    if table.baseline:
        gap = row.difference
        cells.append(Cell(f"{gap.value:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]" if gap else "-"))
    cells += [Cell(f"{len(entry.results):,}"), Cell(f"{entry.n:,}" if entry.n else "?")]
    if row.paper is None or entry.seed is not None:  # over seeds the paper's stands beside the mean
        return [cells]
    printed = [row.paper.accuracy.get(round(radius, 6)) for radius in table.radii]
    cubes = [row.paper.linf.get(epsilon) for epsilon in table.linf]
    beside = [
        *([Cell("")] if table.several_sets else []),
        Cell(""),
        Cell("  paper"),
        Cell(f"{row.paper.acr:.3f}"),
        Cell(""),
        *(Cell("" if value is None else f"{value:.1f}") for value in [*printed, *cubes]),
    ]
    return [cells, beside + [Cell("")] * (len(cells) - len(beside))]


def dataset_title(name: str | None) -> str:
    """Return what people call a data set."""
    return TITLES.get(name or "", name or "?")


def to_text(table: Table | Sheet) -> str:
    """Return an aligned table; `*` marks the best of a column and `_` the second."""
    made = sheet(table)
    marks = {"best": "*", "second": "_", "": " "}
    titles = [title + " " for title in made.titles]
    body = [[[cell.text + marks[cell.mark] for cell in line] for line in group] for group in made.groups]
    widths = [
        max(len(line[i]) for line in [titles, *(line for group in body for line in group)]) for i in range(len(titles))
    ]
    rule = "-" * (sum(widths) + len(widths) - 1)

    def aligned(line: Sequence[str]) -> str:
        padded = [
            f"{text:<{width}}" if title in _WORDS else f"{text:>{width}}"
            for title, text, width in zip(made.titles, line, widths, strict=True)
        ]
        return " ".join(padded).rstrip()

    parts = [aligned(titles)]
    for group in body:
        parts += [rule, *(aligned(line) for line in group)]
    return "\n".join(parts) + "\n"


def to_markdown(table: Table | Sheet) -> str:
    """Return a Markdown table, the best bold and the second underlined."""
    made = sheet(table)
    dress = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}
    lines = [made.titles, [":--" if title in _WORDS else "--:" for title in made.titles]]
    lines += [[dress[cell.mark].format(cell.text.strip()) for cell in line] for line in made.lines]
    return "".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |\n" for line in lines)


def to_latex(table: Table | Sheet) -> str:
    """Return a LaTeX tabular for the booktabs package, the best bold and the second underlined."""
    made = sheet(table)
    dress = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", "": "{}"}
    special = {"sigma": r"$\sigma$", "+-": r"$\pm$", "method": "Method", "data set": "Data set"}
    titles = [special.get(title, _latex(title).replace(r"l\_inf", r"$\ell_\infty$")) for title in made.titles]
    columns = "".join("l" if title in _WORDS else "r" for title in made.titles)
    out = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", " & ".join(titles) + r" \\"]
    for group in made.groups:
        out.append(r"\midrule")
        out += [
            " & ".join(dress[cell.mark].format(_latex(cell.text.strip())) for cell in line) + r" \\" for line in group
        ]
    return "\n".join([*out, r"\bottomrule", r"\end{tabular}"]) + "\n"


def to_csv(table: Table | Sheet) -> str:
    """Return plain numbers, one row a result, paper's numbers in rows of their own."""
    made = sheet(table)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(made.titles)
    for line in made.lines:
        texts = zip(made.titles, (cell.text.strip() for cell in line), strict=True)
        writer.writerow([text if title in _WORDS else text.replace(",", "") for title, text in texts])
    return out.getvalue()


def to_json_text(table: Table) -> str:
    """Return everything as JSON."""
    return json.dumps(to_json(table), indent=2) + "\n"


SHEET_FORMATS: dict[str, Callable[[Table | Sheet], str]] = {
    ".txt": to_text,
    ".md": to_markdown,
    ".tex": to_latex,
    ".csv": to_csv,
}
FORMATS: dict[str, Callable[[Table], str]] = {**SHEET_FORMATS, ".json": to_json_text}
"""The writers by file extension."""


def _fraction(epsilon: float) -> str:
    over = Fraction(epsilon * 255).limit_denominator(1000)
    return f"{over}/255" if over.denominator == 1 else f"{epsilon:g}"


def _latex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(letter, "\\" + letter if letter in "&%$#_{}" else letter) for letter in text)
