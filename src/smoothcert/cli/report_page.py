"""The HTML page and the figures of `smoothcert report`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.common_options import add_data_dir
from smoothcert.cli.progress import say
from smoothcert.errors import SmoothcertError, UsageError

if TYPE_CHECKING:
    from smoothcert.report.figures.montage import Picture
    from smoothcert.report.page.gallery import Load
    from smoothcert.report.sources import Findings
    from smoothcert.report.tables.table import Table


def add_page_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the page and the figures."""
    group = parser.add_argument_group("page and figures")
    group.add_argument("--html", type=Path, metavar="FILE", help="write a self-contained HTML page")
    text = "title of the page (default: %(default)s)"
    group.add_argument("--title", default="Certified robustness", metavar="TEXT", help=text)
    group.add_argument("--figures", type=Path, metavar="DIR", help="folder for the figures, as PDF, SVG and PNG")
    add_data_dir(group)


def write_page(args: argparse.Namespace, found: Findings, table: Table | None) -> None:
    """Write the page and the figures that the options ask for."""
    if args.html:
        if table is None:
            raise UsageError(
                "Expected certificates on clean images for `--html`, but got only results on corrupted images."
            )
        _write_html(args, found, table)
    if args.figures:
        if args.figures.is_file():
            raise UsageError(f"Expected `--figures` to be a folder, but got the file {args.figures}.")
        _write_figures(args, found)


def _write_html(args: argparse.Namespace, found: Findings, table: Table) -> None:
    from smoothcert.report.page import corruption_maps, render_page
    from smoothcert.runtime.atomic_files import write_text

    maps = corruption_maps(found.corrupted)
    load, networks = find_test_images(args.data_dir), found.corrupted
    page = render_page(found.runs, table, title=args.title, load=load, corruptions=maps, networks=networks)
    write_text(args.html, page)
    say(f"Wrote {args.html} ({len(page.encode()) / 1e3:,.0f} kB)")


def _write_figures(args: argparse.Namespace, found: Findings) -> None:
    from smoothcert.report.corrupted.results import corruption_groups
    from smoothcert.report.figures.canvas import save_all
    from smoothcert.report.figures.figure_set import file_name, write_figures
    from smoothcert.report.figures.heatmap import draw_heat_map
    from smoothcert.report.figures.montage import draw_montage

    for path in write_figures(found.runs, args.figures, paper=args.paper):
        say(f"Wrote {path}")
    for networks in corruption_groups(found.corrupted):
        together = len(networks) > 1 and all(network.severities == [1] for network in networks)
        for entry in networks[:1] if together else networks:
            about = [entry.dataset or entry.suite, *([] if together else [entry.name]), f"{entry.sigma or 0:.2f}"]
            stem = file_name("-".join(["corruption", *about, *([f"n{entry.n}"] if entry.n else [])]))
            for path in save_all(draw_heat_map(networks if together else [entry]), args.figures / stem):
                say(f"Wrote {path}")
    for name, pictures in _montages(found, args.data_dir).items():
        for path in save_all(draw_montage(pictures, columns=8), args.figures / name):
            say(f"Wrote {path}")


def _montages(found: Findings, data_dir: str | Path | None) -> dict[str, Mapping[str, Picture]]:
    """Return the pictures for the CAT-RS paper's figures 7 and 8, except for datasets without results or images."""
    from smoothcert.data import find_corrupted
    from smoothcert.report.figures.montage import corruption_pictures

    montages: dict[str, Mapping[str, Picture]] = {}
    for name, suite in (("figure-7", "cifar10-c"), ("figure-8", "mnist-c")):
        datasets = [entry.dataset or suite for entry in found.corrupted if entry.suite == suite]
        try:
            images = find_corrupted(datasets[0], data_dir) if datasets else None
            if images:
                montages[name] = corruption_pictures(images, 0, data_dir=data_dir)
        except SmoothcertError as error:
            say(f"No {name}: {error}")
    return montages


def find_test_images(data_dir: str | Path | None) -> Load:
    """Return a function that takes the name of a dataset and loads its test images as `Pictures`."""

    def load(name: str) -> Any:
        import torch

        from smoothcert.data import load_dataset
        from smoothcert.report.page import Pictures

        data = load_dataset(name, "test", data_dir)

        def pixels(indices: Any) -> Any:
            return data.images[torch.as_tensor(indices)].permute(0, 2, 3, 1).numpy()

        return Pictures(pixels, data.labels.numpy(), data.classes, data.fingerprint)

    return load
