"""Tables as plain text, Markdown, LaTeX or CSV."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from smoothcert.dataset_names import TITLES
from smoothcert.errors import printable
from smoothcert.report.tables.paper_numbers import PaperRow
from smoothcert.report.tables.table import Table, TableRow


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

    def without(self, titles: Collection[str]) -> Sheet:
        """Return the table without the columns that have one of these titles."""
        kept = [number for number, title in enumerate(self.titles) if title not in titles]
        groups = [[[line[number] for number in kept] for line in group] for group in self.groups]
        return replace(self, titles=[self.titles[number] for number in kept], groups=groups)


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
    titles = ["dataset", "sigma", "method", "ACR", "+-", *radii, *linf, *difference, "images", "n"]
    groups = [[line for row in group for line in row_lines(row, table)] for group in table.groups()]
    return without_single_dataset(Sheet(titles, groups), table)


def without_single_dataset(printed: Sheet, table: Table) -> Sheet:
    """Omit the column `dataset` unless the rows of `table` belong to several datasets."""
    return printed if table.several_sets else printed.without(["dataset"])


def row_lines(row: TableRow, table: Table, paper: PaperRow | None = None) -> Lines:
    """Return a line with a run's numbers and, if `paper` or `row.paper` is given, a line with the paper's numbers."""
    entry = row.entry
    cells = [
        Cell(dataset_title(entry.dataset)),
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
    texts = ["", "", "  paper", f"{paper.acr:.3f}", ""]
    texts += ["" if value is None else f"{value:.1f}" for value in accuracy]
    texts += [""] * (len(cells) - len(texts))
    return [cells, [Cell(text, "paper") for text in texts]]


def dataset_title(name: str | None) -> str:
    """Return the display name of a dataset, `?` if it is unknown."""
    return TITLES.get(name or "", name or "?")


_MARKS = {"best": "*", "second": "_", "worse": "-", "": " "}


def to_text(table: Table | Sheet) -> str:
    """Return an aligned table; `*` marks the best value of a column, `_` the second best, and `-` grayed values."""
    printed = sheet(table)
    texts = [_one_line(printed.note)] if printed.note else []
    texts += ["".join(text for text, _ in line).rstrip() for line in aligned_lines(printed, _MARKS, "-")]
    return "".join(f"{text}\n" for text in texts)


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
    """Text format of tables, used for files and by the report page's buttons that copy the table."""

    head: str = ""  # before the titles; `{columns}` stands for one letter per column, l (left-aligned) or r
    row: tuple[str, str, str] = ("", "", "\n")  # before, between and after the cells of a line
    align: tuple[str, ...] = ()  # cells for left- and for right-aligned columns in a line below the titles
    rule: str = ""  # above each group
    foot: str = ""
    marks: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # texts before and after a marked value
    escapes: Mapping[str, str] = field(default_factory=dict)  # replacements of characters in cells
    titles: Mapping[str, str] = field(default_factory=dict)  # replacements of words in titles
    quotes: bool = False  # quote cells that contain a comma, quote or line break; remove commas from numbers

    def write(self, table: Table | Sheet) -> str:
        """Return a table in this format."""
        printed = sheet(table)
        left = [title in TEXT_COLUMNS for title in printed.titles]
        parts = [self.head.replace("{columns}", "".join("l" if text else "r" for text in left))]
        parts.append(self._line(map(self._title, printed.titles)))
        if self.align:
            parts.append(self._line(self.align[0 if text else 1] for text in left))
        for group in printed.groups:
            parts += [self.rule, *(self._line(map(self._cell, line, left)) for line in group)]
        return "".join([*parts, self.foot])

    def _title(self, title: str) -> str:
        return " ".join(self.titles.get(word, self._escape(word)) for word in title.split(" "))

    def _line(self, cells: Iterable[str]) -> str:
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
        titles={"l_inf": r"$\ell_\infty$", "sigma": r"$\sigma$", "+-": r"$\pm$"}
        | {"method": "Method", "dataset": "Dataset"},
    ),
    ".csv": TextFormat(row=("", ",", "\n"), quotes=True),
}
"""Formats by file extension.

Markdown and LaTeX (with booktabs) print the best value in bold and underline the second best; CSV has plain numbers.
"""


to_markdown = TEXT_FORMATS[".md"].write

FORMATS: dict[str, Callable[[Table | Sheet], str]] = {
    ".txt": to_text,
    **{suffix: form.write for suffix, form in TEXT_FORMATS.items()},
}
"""Writers by file extension."""


def _fraction(epsilon: float) -> str:
    over = (Fraction(epsilon) * 255).limit_denominator(1000)
    return f"{over}/255" if over.denominator == 1 and epsilon <= 1 else f"{epsilon:g}"


def _one_line(text: str) -> str:
    return printable(text).replace("\n", " ")
