"""The table on a terminal: colours, marks one can see, and each run's curve as a line of bars."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from smoothcert.report.tables.table import Table


def show_table(table: Table, console: Console | None = None) -> bool:
    """Print the table with rich; say False, and print nothing, where that is not to be had or has no room."""
    try:
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text
    except ImportError:
        return False
    from smoothcert.report.tables.formats import TEXT_COLUMNS, groups, header
    from smoothcert.report.tables.sparkline import curve_line

    console = console or Console(file=sys.stdout)
    if console.options.ascii_only:  # it has no bars
        return False
    titles = header(table)
    shown = RichTable(box=None, pad_edge=False, header_style="dim", padding=(0, 1))
    after = titles.index("method") + 1
    for title in [*titles[:after], "curve", *titles[after:]]:
        left = title in (*TEXT_COLUMNS, "curve")
        shown.add_column(title, justify="left" if left else "right", no_wrap=True)
    styles = {"best": "bold green", "second": "underline", "": ""}
    for rows, lines in zip(table.groups(), groups(table), strict=True):
        # The paper's numbers, where asked for, are a second line of their row, without a curve.
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
