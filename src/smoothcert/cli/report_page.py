"""What `smoothcert report` writes beside the table: the page and the figures."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.options import add_data_dir
from smoothcert.cli.terminal import say

if TYPE_CHECKING:
    from smoothcert.report.page.pictures import Load
    from smoothcert.report.sources import Run
    from smoothcert.report.table import Table


def add_page_options(parser: argparse.ArgumentParser) -> None:
    """Add what asks for the page and the figures."""
    group = parser.add_argument_group("page and figures")
    group.add_argument("--html", type=Path, metavar="FILE", help="write one page that opens from disk, offline")
    group.add_argument("--title", default="Certified robustness", help="its title")
    group.add_argument("--figures", type=Path, metavar="DIR", help="write figures as PDF, SVG and PNG")
    add_data_dir(group)


def write_page(args: argparse.Namespace, runs: Sequence[Run], table: Table) -> None:
    """Write the page and the figures, where they were asked for."""
    from smoothcert.storage import write_text

    if args.html:
        from smoothcert.report.page import render_page

        page = render_page(runs, table, title=args.title, load=find_test_images(args.data_dir))
        write_text(args.html, page)
        say(f"Wrote {args.html} ({len(page.encode()) / 1e3:,.0f} kB)")
    if args.figures:
        from smoothcert.report.figure_set import write_figures

        for path in write_figures(runs, args.figures):
            say(f"Wrote {path}")


def find_test_images(data_dir: str | Path | None) -> Load:
    """Return what finds the test images of a data set by its name, as the page wants them."""

    def load(name: str) -> Any:
        import torch

        from smoothcert.data import load_dataset
        from smoothcert.report.page import Pictures

        data = load_dataset(name, "test", data_dir)

        def pixels(indices: Any) -> Any:
            return data.images[torch.as_tensor(indices)].permute(0, 2, 3, 1).numpy()

        return Pictures(pixels, data.labels.numpy(), data.classes, data.fingerprint)

    return load
