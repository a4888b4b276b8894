"""Fit the results table to a terminal: omit the least informative parts until a row fits on a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from smoothcert.report.tables.formats import Cell, Lines, Sheet, dataset_title, sheet
from smoothcert.report.tables.table import Table, TableRow
from smoothcert.results.records import Results
from smoothcert.statistics.metrics import certified_accuracy

_READABLE_NAME, _SHORTEST_NAME = 20, 12
_BARS = " ▁▂▃▄▅▆▇█"


def fit_table(table: Table, fits: Callable[[Sheet], bool], *, curves: bool = True) -> Sheet:
    """Return the most complete form of a table that fits, or the narrowest one if none does.

    Shorter forms omit, in this order: radii at which no image is certified; the columns `images` and `n`, whose values
    move to the note; the columns of dataset and noise level, which become headings; the sparklines; letters of long
    names; the standard error; more letters; every second radius, repeatedly.
    """
    for printed in _narrower(table, curves):
        if fits(printed):
            break
    return printed


def _narrower(table: Table, curves: bool) -> Iterator[Sheet]:
    complete, radii = sheet(table), [f"{radius:.2f}" for radius in table.radii]
    certified = complete.without(_zero_columns(complete, radii))
    sized = replace(certified.without(["images", "n"]), note=_sizes(table.rows))
    plain = replace(sized.without(["dataset", "sigma"]), headings=_headings(table))
    for shown in (complete, certified, sized, plain):
        yield _with_curves(shown, table) if curves else shown
    yield plain
    longest = max(len(row.entry.title) for row in table.rows)
    yield from (_with_short_names(plain, width) for width in range(longest - 1, _READABLE_NAME - 1, -1))
    plain = plain.without(["+-"])
    yield from (_with_short_names(plain, width) for width in range(longest, _SHORTEST_NAME - 1, -1))
    plain = _with_short_names(plain, _SHORTEST_NAME)
    while len(left := [title for title in plain.titles if title in radii]) > 1:
        plain = replace(plain.without(left[1::2]), note=f"{plain.note} Not all radii fit this terminal.")
        yield plain


def _zero_columns(shown: Sheet, radii: Sequence[str]) -> list[str]:
    columns = zip(shown.titles, zip(*shown.lines, strict=True), strict=True)
    return [title for title, cells in columns if title in radii and {cell.text for cell in cells} <= {"0.0", ""}]


def _with_short_names(shown: Sheet, width: int) -> Sheet:
    place = shown.titles.index("method")

    def shorten(line: list[Cell]) -> list[Cell]:
        short = replace(line[place], text=short_name(line[place].text, width))
        return [*line[:place], short, *line[place + 1 :]]

    return replace(shown, groups=[[shorten(line) for line in group] for group in shown.groups])


def short_name(name: str, width: int) -> str:
    """Shorten the method before the comma in a row's name or, if that is not enough, cut off the end of the name.

    >>> short_name("Consistency, lambda=10", 20), short_name("Consistency, lambda=10", 9)
    ('Consist.., lambda=10', 'Consist..')
    """
    if len(name) <= width:
        return name
    method, comma, rest = name.partition(",")
    room = width - len(comma + rest) - 2
    if not comma or room < 3:
        return name[: width - 2] + ".."
    return f"{method[:room]}..{comma}{rest}"


def curve_line(results: Results, last: float) -> str:
    """Draw certified accuracy from radius 0 to `last` as bars of eight heights; only exact zeros are blank."""
    shares = certified_accuracy(results.radius, results.correct, np.linspace(0, last, 16))
    return "".join(_BARS[max(round(8 * share), int(share > 0))] for share in shares.tolist())


def _with_curves(shown: Sheet, table: Table) -> Sheet:
    """Add a column of sparklines, empty in the lines with the paper's numbers."""
    after, groups = shown.titles.index("method") + 1, []
    for rows, lines in zip(table.groups(), shown.groups, strict=True):
        curves = iter([curve_line(row.entry.results, table.radii[-1]) for row in rows])
        cells = [Cell("" if line[after - 1].mark == "paper" else next(curves), "curve") for line in lines]
        groups.append([[*line[:after], cell, *line[after:]] for line, cell in zip(lines, cells, strict=True)])
    return replace(shown, titles=[*shown.titles[:after], "curve", *shown.titles[after:]], groups=groups)


def _headings(table: Table) -> tuple[str, ...]:
    """Return a heading for each group: dataset, noise level and, if it differs between rows, the number of images."""
    several = len({len(row.entry.results) for row in table.rows}) > 1
    headings = []
    for rows in table.groups():
        entry = rows[0].entry
        parts = [dataset_title(entry.dataset)] if entry.dataset else []
        parts += [f"sigma {entry.sigma:.2f}"] if entry.sigma else []
        parts += [f"{len(entry.results):,} images"] if several else []
        headings.append(", ".join(parts))
    return tuple(headings)


def _sizes(rows: Sequence[TableRow]) -> str:
    images = sorted({len(row.entry.results) for row in rows}, reverse=True)
    samples = sorted({row.entry.n for row in rows if row.entry.n}, reverse=True)
    text = f"{' or '.join(f'{number:,}' for number in images)} images"
    return f"{text}, n = {' or '.join(f'{number:,}' for number in samples)}." if samples else f"{text}."


def fit_corruptions(printed: Sheet, fits: Callable[[Sheet], bool]) -> list[Sheet]:
    """Return the table; if it is too wide, return one or more tables per measure, with a row per corruption."""
    if fits(printed):
        return [printed]
    shown = []
    for group in printed.groups:
        most = next((size for size in range(len(group), 1, -1) if fits(_transposed(printed, group[:size]))), 1)
        shown += [_transposed(printed, group[start : start + most]) for start in range(0, len(group), most)]
    return shown


def _transposed(printed: Sheet, group: Lines) -> Sheet:
    place = printed.titles.index("method")
    rows = [number for number in range(place + 1, len(printed.titles) - 2) if printed.titles[number] != "+-"]
    lines = [[Cell(printed.titles[number]), *(line[number] for line in group)] for number in rows]
    sigma, images, n = (_different(printed, group, title) for title in ("sigma", "images", "n"))
    note = f"{group[0][0].text} on {printed.titles[0]}, sigma {sigma}: {images} images, n = {n}."
    return Sheet(["corruption", *(line[place].text.strip() for line in group)], [lines], note)


def _different(printed: Sheet, group: Lines, title: str) -> str:
    texts = dict.fromkeys(line[printed.titles.index(title)].text for line in group)
    return " or ".join(text for text in texts if text)
