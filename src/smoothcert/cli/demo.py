"""The command `smoothcert demo`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from smoothcert.cli.progress import say


def add_command(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "demo",
        help='write the demo page "Attack this digit"',
        description="Write a self-contained HTML page that certifies digits in the browser and lets you attack them.",
    )
    parser.add_argument("--html", type=Path, required=True, metavar="FILE", help="the page to write")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Write the page."""
    from smoothcert.demo import render_demo
    from smoothcert.runtime.atomic_files import write_text

    page = render_demo()
    write_text(args.html, page)
    say(f"Wrote {args.html} ({len(page.encode()) / 1e6:.2f} MB); open it in a browser.")
