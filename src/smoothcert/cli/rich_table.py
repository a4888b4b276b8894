"""Results tables fitted to the width of the terminal, with colors and a sparkline of each run's curve."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from smoothcert.report.tables.formats import Sheet
    from smoothcert.report.tables.table import Table

_STYLES = {
    "best": "bold green",
    "second": "underline",
    "worse": "bright_black",
    "curve": "cyan",
    "paper": "dim",
    "title": "dim",
    "rule": "dim",
}


def show_tables(tables: Sequence[Table | Sheet], console: Console | None = None) -> None:
    """Print tables; those with results, on clean or corrupted images, are fitted to the width of the terminal."""
    from rich.console import Console
    from rich.text import Text

    from smoothcert.report.tables.fitting import fit_corruptions, fit_table
    from smoothcert.report.tables.formats import Sheet, aligned_lines, to_text

    console = console or Console(file=sys.stdout)
    plain = console.options.ascii_only  # if True, letters mark the best values, and there are no sparklines

    def as_lines(shown: Sheet) -> list[Text]:
        if plain:
            return [Text(line) for line in to_text(shown).splitlines()]
        note = [Text(shown.note, style="dim")] if shown.note else []
        lines = aligned_lines(shown, {}, "\N{BOX DRAWINGS LIGHT HORIZONTAL}")
        return note + [Text.assemble(*((text, _STYLES.get(mark, "")) for text, mark in line)) for line in lines]

    def fits(shown: Sheet) -> bool:
        return all(line.cell_len <= console.width for line in as_lines(replace(shown, note="")))

    shown: list[Sheet] = []
    for table in tables:
        if isinstance(table, Sheet):
            shown += fit_corruptions(table, fits) if "images" in table.titles else [table]
        else:
            shown.append(fit_table(table, fits, curves=not plain))
    for number, part in enumerate(shown):
        console.print(*[Text("")] * (number > 0), *as_lines(part), sep="\n", soft_wrap=True, highlight=False)
