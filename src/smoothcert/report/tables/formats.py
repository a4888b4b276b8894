"""Tables as plain text, Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from smoothcert.dataset_names import TITLES
from smoothcert.report.tables.table import Table, TableRow, to_json


@dataclass(frozen=True)
class Cell:
    """Text of a table cell; `mark` is "best", "second", "paper" for the paper's numbers, "curve" or empty."""

    text: str
    mark: str = ""


Lines = list[list[Cell]]

TEXT_COLUMNS = ("dataset", "method", "curve", "corruption", "recipe")
"""Titles of left-aligned columns; all others hold numbers."""


@dataclass(frozen=True)
class Sheet:
    """A printable table: column titles and groups of lines, with what is said above the table and each group."""

    titles: list[str]
    groups: list[Lines]
    note: str = ""
    headings: tuple[str, ...] = ()

    @property
    def lines(self) -> Lines:
        """Lines of all groups."""
        return [line for group in self.groups for line in group]


@dataclass(frozen=True)
class Annex:
    """An additional table below the main one, and its values for JSON."""

    sheet: Sheet
    values: list[dict[str, Any]]


def sheet(table: Table | Sheet) -> Sheet:
    """Return the printable form of a table."""
    if isinstance(table, Sheet):
        return table
    radii = [f"{radius:.2f}" for radius in table.radii]
    linf = [f"l_inf {_fraction(epsilon)}" for epsilon in table.linf]
    difference = [f"ACR - {table.baseline}"] if table.baseline else []
    dataset = ["dataset"] if table.several_sets else []
    titles = [*dataset, "sigma", "method", "ACR", "+-", *radii, *linf, *difference, "images", "n"]
    return Sheet(titles, [[line for row in group for line in _row_lines(row, table)] for group in table.groups()])


def _row_lines(row: TableRow, table: Table) -> Lines:
    """Return the line of a row, and one with the paper's numbers if requested."""
    entry = row.entry
    dataset = [Cell(dataset_title(entry.dataset))] if table.several_sets else []
    cells = [
        *dataset,
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
    if row.paper is None or entry.seed is not None:  # for several seeds, the table of means has the paper's number
        return [cells]
    accuracy = [row.paper.accuracy.get(round(radius, 6)) for radius in table.radii]
    accuracy += [row.paper.linf.get(epsilon) for epsilon in table.linf]
    texts = ["", *([""] if dataset else []), "  paper", f"{row.paper.acr:.3f}", ""]
    texts += ["" if value is None else f"{value:.1f}" for value in accuracy]
    texts += [""] * (len(cells) - len(texts))
    return [cells, [Cell(text, "paper") for text in texts]]


def dataset_title(name: str | None) -> str:
    """Return the usual name of a dataset."""
    return TITLES.get(name or "", name or "?")


_MARKS = {"best": "*", "second": "_", "": " "}


def to_text(table: Table | Sheet) -> str:
    """Return an aligned table; `*` marks the best of a column and `_` the second best."""
    printed = sheet(table)
    lines = aligned_lines(printed, _MARKS, "-")
    texts = ["".join(text for text, _ in line).rstrip() for line in lines]
    return "".join(f"{text}\n" for text in ([printed.note] if printed.note else []) + texts)


def aligned_lines(printed: Sheet, marks: Mapping[str, str], dash: str) -> Iterator[list[tuple[str, str]]]:
    """Yield the lines of an aligned table, with a rule above each group, as pieces of (text, mark).

    `marks` are appended to the cells. The pieces of a rule have the mark "rule", those of the titles "title".
    """
    after = " " if marks else ""
    titles = [[Cell(title, "title") for title in printed.titles]]
    columns = zip(*titles, *printed.lines, strict=True)
    widths = [max(len(cell.text) for cell in column) for column in columns]

    def line_of(cells: Sequence[Cell]) -> Iterator[tuple[str, str]]:
        for number, (title, cell, width) in enumerate(zip(printed.titles, cells, widths, strict=True)):
            space, mark = " " * (width - len(cell.text)), marks.get(cell.mark, after)
            before = "" if number == 0 else " "
            left = title in TEXT_COLUMNS
            yield before if left else before + space, ""
            yield cell.text, cell.mark
            yield mark + space if left else mark, ""

    total = sum(widths) + len(widths) * (1 + len(after)) - 1
    yield list(line_of(titles[0]))
    for number, group in enumerate(printed.groups):
        heading = f"{dash * 2} {printed.headings[number]} " if printed.headings else ""
        yield [(heading.ljust(total, dash), "rule")]
        yield from (list(line_of(line)) for line in group)


def to_markdown(table: Table | Sheet) -> str:
    """Return a Markdown table, the best in bold and the second best underlined."""
    printed = sheet(table)
    styles = {"best": "**{}**", "second": "<u>{}</u>"}
    lines = [printed.titles, [":--" if title in TEXT_COLUMNS else "--:" for title in printed.titles]]
    lines += [[styles.get(cell.mark, "{}").format(cell.text.strip()) for cell in line] for line in printed.lines]
    return "".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |\n" for line in lines)


def to_latex(table: Table | Sheet) -> str:
    """Return a LaTeX tabular for booktabs, the best in bold and the second best underlined."""
    printed = sheet(table)
    styles = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}"}
    special = {"sigma": r"$\sigma$", "+-": r"$\pm$", "method": "Method", "dataset": "Dataset"}
    titles = [special.get(title, _latex(title).replace(r"l\_inf", r"$\ell_\infty$")) for title in printed.titles]
    columns = "".join("l" if title in TEXT_COLUMNS else "r" for title in printed.titles)
    out = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", " & ".join(titles) + r" \\"]
    for group in printed.groups:
        out.append(r"\midrule")
        out += [
            " & ".join(styles.get(cell.mark, "{}").format(_latex(cell.text.strip())) for cell in line) + r" \\"
            for line in group
        ]
    return "\n".join([*out, r"\bottomrule", r"\end{tabular}"]) + "\n"


def to_csv(table: Table | Sheet) -> str:
    """Return CSV with plain numbers; the paper's numbers are in separate rows."""
    printed = sheet(table)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(printed.titles)
    for line in printed.lines:
        texts = zip(printed.titles, (cell.text.strip() for cell in line), strict=True)
        writer.writerow([text if title in TEXT_COLUMNS else text.replace(",", "") for title, text in texts])
    return out.getvalue()


SHEET_FORMATS: dict[str, Callable[[Table | Sheet], str]] = {
    ".txt": to_text,
    ".md": to_markdown,
    ".tex": to_latex,
    ".csv": to_csv,
}
FORMATS: dict[str, Callable[[Table], str]] = {
    **SHEET_FORMATS,
    ".json": lambda table: json.dumps(to_json(table), indent=2) + "\n",
}
"""Writers by file extension."""


def _fraction(epsilon: float) -> str:
    over = Fraction(epsilon * 255).limit_denominator(1000)
    return f"{over}/255" if over.denominator == 1 else f"{epsilon:g}"


def _latex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(letter, "\\" + letter if letter in "&%$#_{}" else letter) for letter in text)
