"""The results table on a terminal, with colors and a sparkline of each run's curve."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from smoothcert.report.tables.table import Table


def show_table(table: Table, console: Console | None = None) -> bool:
    """Print the table; return False, printing nothing, if the terminal is too narrow or ASCII only."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    from smoothcert.report.tables.formats import TEXT_COLUMNS, sheet
    from smoothcert.report.tables.sparkline import curve_line

    console = console or Console(file=sys.stdout)
    if console.options.ascii_only:  # it cannot show sparklines
        return False
    printed = sheet(table)
    titles = printed.titles
    shown = RichTable(box=None, pad_edge=False, header_style="dim", padding=(0, 1))
    after = titles.index("method") + 1
    for title in [*titles[:after], "curve", *titles[after:]]:
        left = title in (*TEXT_COLUMNS, "curve")
        shown.add_column(title, justify="left" if left else "right", no_wrap=True)
    styles = {"best": "bold green", "second": "underline", "": ""}
    for rows, lines in zip(table.groups(), printed.groups, strict=True):
        # With `--paper`, the paper's numbers are a second line of each row, without a curve.
        curves = iter([curve_line(row.entry.results, table.radii[-1]) for row in rows])
        for number, line in enumerate(lines):
            paper = line[after - 1].text == "  paper" and not line[0].text
            cells = [Text(cell.text, style="dim" if paper else styles[cell.mark]) for cell in line]
            curve = Text("" if paper else next(curves), style="cyan")
            shown.add_row(*cells[:after], curve, *cells[after:], end_section=number == len(lines) - 1)
    if console.measure(shown, options=console.options.update(width=10_000)).maximum > console.width:
        return False
    console.print(shown)
    return True
