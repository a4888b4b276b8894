"""Tables as plain text, Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from smoothcert.dataset_names import TITLES
from smoothcert.errors import printable
from smoothcert.report.tables.paper_numbers import PaperRow
from smoothcert.report.tables.table import Table, TableRow, to_json


@dataclass(frozen=True)
class Cell:
    """Text of a table cell and its mark.

    `mark` is "best" or "second" (of its column), "worse" (than Gaussian training of equal cost), "paper" (a number from
    the paper), "curve" (a small plot in characters), "title" (of a column) or empty.
    """

    text: str
    mark: str = ""

    def __post_init__(self) -> None:
        """Escape the text, so that a name from a file cannot break the line or move a terminal's cursor."""
        object.__setattr__(self, "text", _one_line(self.text))


Lines = list[list[Cell]]

TEXT_COLUMNS = ("dataset", "method", "curve", "corruption", "recipe", "model", "network")
"""Titles of left-aligned columns; all others contain numbers."""


@dataclass(frozen=True)
class Sheet:
    """A printable table: column titles, groups of lines, a note above the table, and a heading above each group."""

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
    return Sheet(titles, [[line for row in group for line in row_lines(row, table)] for group in table.groups()])


def row_lines(row: TableRow, table: Table, paper: PaperRow | None = None) -> Lines:
    """Return a line with a run's numbers and, if `paper` or `row.paper` is given, a line with the paper's numbers."""
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
    paper = paper or row.paper
    if paper is None or entry.seed is not None:  # for several seeds, the paper's numbers are in the table of means
        return [cells]
    accuracy = [paper.accuracy.get(round(radius, 6)) for radius in table.radii]
    accuracy += [paper.linf.get(epsilon) for epsilon in table.linf]
    texts = ["", *([""] if dataset else []), "  paper", f"{paper.acr:.3f}", ""]
    texts += ["" if value is None else f"{value:.1f}" for value in accuracy]
    texts += [""] * (len(cells) - len(texts))
    return [cells, [Cell(text, "paper") for text in texts]]


def dataset_title(name: str | None) -> str:
    """Return the display name of a dataset."""
    return TITLES.get(name or "", name or "?")


_MARKS = {"best": "*", "second": "_", "worse": "-", "": " "}


def to_text(table: Table | Sheet) -> str:
    """Return an aligned table; `*` marks the best value of a column, `_` the second best, and `-` grayed values."""
    printed = sheet(table)
    lines = aligned_lines(printed, _MARKS, "-")
    texts = ["".join(text for text, _ in line).rstrip() for line in lines]
    return "".join(f"{text}\n" for text in ([_one_line(printed.note)] if printed.note else []) + texts)


def aligned_lines(printed: Sheet, marks: Mapping[str, str], dash: str) -> Iterator[list[tuple[str, str]]]:
    """Yield the lines of an aligned table, with a rule above each group, as pieces of (text, mark).

    `marks` maps the mark of a cell to the text that is appended to the cell. Rules are marked "rule", and column titles
    are marked "title".
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
        heading = f"{dash * 2} {_one_line(printed.headings[number])} " if printed.headings else ""
        yield [(heading.ljust(total, dash), "rule")]
        yield from (list(line_of(line)) for line in group)


@dataclass(frozen=True)
class TextFormat:
    """Text format of tables, used for files and by the report page's buttons that copy the table.

    Attributes:
        head: Text before the titles; `{columns}` stands for one letter per column, l (left-aligned) or r.
        row: Text before, between and after the cells of a line.
        align: Cells for left- and for right-aligned columns in an additional line below the titles; empty for no line.
        rule: Line above each group.
        foot: Text at the end.
        marks: Texts before and after a value with the mark "best", "second" or "worse".
        escapes: Replacements of characters in cells.
        titles: Replacements of words in titles.
        quotes: If True, quote cells that contain a comma, quote or line break, and remove commas from numbers.
    """

    head: str = ""
    row: tuple[str, str, str] = ("", "", "\n")
    align: tuple[str, ...] = ()
    rule: str = ""
    foot: str = ""
    marks: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    escapes: Mapping[str, str] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    quotes: bool = False

    def write(self, table: Table | Sheet) -> str:
        """Return a table in this format."""
        printed = sheet(table)
        left = [title in TEXT_COLUMNS for title in printed.titles]
        columns = "".join("l" if text else "r" for text in left)
        parts = [self.head.replace("{columns}", columns)]
        parts.append(self._line([self._title(title) for title in printed.titles]))
        if self.align:
            parts.append(self._line([self.align[0 if text else 1] for text in left]))
        for group in printed.groups:
            parts.append(self.rule)
            parts += [self._line([self._cell(c, text) for c, text in zip(line, left, strict=True)]) for line in group]
        return "".join([*parts, self.foot])

    def _title(self, title: str) -> str:
        return " ".join(self.titles.get(word, self._escape(word)) for word in title.split(" "))

    def _line(self, cells: Sequence[str]) -> str:
        before, between, after = self.row
        return before + between.join(cells) + after

    def _cell(self, cell: Cell, is_text: bool) -> str:
        text = cell.text.strip()
        if self.quotes:
            text = text if is_text else text.replace(",", "")
            return '"' + text.replace('"', '""') + '"' if re.search('[",\\n]', text) else text
        before, after = self.marks.get(cell.mark, ("", ""))
        return before + self._escape(text) + after

    def _escape(self, text: str) -> str:
        return "".join(self.escapes.get(letter, letter) for letter in text)


TEXT_FORMATS = {
    ".md": TextFormat(
        row=("| ", " | ", " |\n"),
        align=(":--", "--:"),
        marks={"best": ("**", "**"), "second": ("<u>", "</u>"), "worse": ('<span style="color:gray">', "</span>")},
        escapes={letter: "\\" + letter for letter in "\\`|<*["},
    ),
    ".tex": TextFormat(
        head="\\begin{tabular}{{columns}}\n\\toprule\n",
        row=("", " & ", " \\\\\n"),
        rule="\\midrule\n",
        foot="\\bottomrule\n\\end{tabular}\n",
        marks={"best": ("\\textbf{", "}"), "second": ("\\underline{", "}"), "worse": ("\\textcolor{gray}{", "}")},
        escapes={"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
        | {letter: f"\\{letter}" for letter in "&%$#_{}"},
        titles={
            "l_inf": r"$\ell_\infty$",
            "sigma": r"$\sigma$",
            "+-": r"$\pm$",
            "method": "Method",
            "dataset": "Dataset",
        },
    ),
    ".csv": TextFormat(row=("", ",", "\n"), quotes=True),
}
"""Formats by file extension.

Markdown and LaTeX (with booktabs) print the best value in bold and underline the second best; CSV has plain numbers.
"""


to_markdown = TEXT_FORMATS[".md"].write

SHEET_FORMATS: dict[str, Callable[[Table | Sheet], str]] = {
    ".txt": to_text,
    **{suffix: form.write for suffix, form in TEXT_FORMATS.items()},
}
FORMATS: dict[str, Callable[[Table], str]] = {
    **SHEET_FORMATS,
    ".json": lambda table: json.dumps(to_json(table), indent=2) + "\n",
}
"""Writers by file extension."""


def _fraction(epsilon: float) -> str:
    over = Fraction(epsilon * 255).limit_denominator(1000)
    return f"{over}/255" if over.denominator == 1 else f"{epsilon:g}"


def _one_line(text: str) -> str:
    return printable(text).replace("\n", " ")
