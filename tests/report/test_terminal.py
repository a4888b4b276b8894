"""Results tables on terminals of several widths."""

import dataclasses
import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path

import numpy as np
import pytest
from page_runs import make_run
from rich.console import Console

from smoothcert.cli.rich_table import show_tables
from smoothcert.report.corrupted.tables import corruption_sheets
from smoothcert.report.sources import read_findings, read_runs
from smoothcert.report.tables.fitting import curve_line
from smoothcert.report.tables.table import build_table
from smoothcert.training.recipes import load_recipe

LABELS = np.arange(60) % 10


def write_recipes(root, *names, **options):
    for number, name in enumerate(names):
        config = load_recipe(name)
        settings = {"method": config.method, "sigma": config.sigma, "dataset": config.dataset}
        make_run(root / name, LABELS, options=dict(config.options), skill=6.0 - number / 2, **settings, **options)
    return [run.entry for run in read_runs([str(root)])]


def shown(tables, width, encoding="utf-8"):
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    show_tables(tables, Console(file=out, width=width, force_terminal=False))
    out.flush()
    return out.buffer.getvalue().decode(encoding).splitlines()


@pytest.fixture
def table(tmp_path):
    return build_table(write_recipes(tmp_path, "mnist-gaussian-1.00", "mnist-catrs-1.00", "mnist-gaussian-0.25"))


def test_a_wide_terminal_shows_everything_with_curves_and_rules(table):
    titles, *lines = shown([table], 160)
    assert titles.split()[:4] == ["sigma", "method", "curve", "ACR"]
    assert titles.split()[-2:] == ["images", "n"]
    assert [number for number, line in enumerate(lines) if set(line) == {"─"}] == [0, 2], "a rule above each sigma"
    text = "\n".join(lines)
    for row in table.rows:
        assert f"{row.acr.value:.3f}" in text
        assert curve_line(row.entry.results, table.radii[-1]).rstrip() in text


def test_only_exact_zeros_of_a_curve_are_blank(table):
    results = dataclasses.replace(
        table.rows[0].entry.results, radius=np.repeat([0.2, 0.5, 2.0], [30, 29, 1]), correct=np.ones(60, dtype=bool)
    )
    assert curve_line(results, 3.0) == "██▄▁▁▁▁▁▁▁▁     "


def test_the_papers_numbers_are_a_line_without_a_curve(tmp_path):
    entries = write_recipes(tmp_path, "mnist-gaussian-1.00", "fashion-mnist-gaussian-1.00")
    lines = shown([build_table(entries, paper=True)], 170)
    assert lines[0].split()[:3] == ["dataset", "sigma", "method"]
    printed = [line for line in lines if "paper" in line]
    assert len(printed) == 2
    assert not re.search("[▁▂▃▄▅▆▇█]", "".join(printed))


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("width", [130, 100, 80, 60])
def test_no_row_is_wider_than_the_terminal(tmp_path, width, encoding):
    names = [f"{data}-{method}-{sigma}" for data in ("mnist", "fashion-mnist") for method in ("gaussian", "catrs")
             for sigma in ("0.25", "1.00")]  # fmt: skip
    table = build_table(write_recipes(tmp_path, *names, "mnist-consistency-1.00-lambda10"))
    lines = shown([table], width, encoding)
    assert max(map(len, lines)) <= width
    assert [f"{row.acr.value:.3f}" in "\n".join(lines) for row in table.rows] == [True] * len(table.rows)
    (cut,) = [line for line in lines if "Consis" in line]
    assert "lambda=10" in cut or "Consistenc.." in cut


def test_zero_radii_go_first_then_sizes_then_columns_that_become_headings(tmp_path):
    table = build_table(write_recipes(tmp_path, "mnist-gaussian-0.25", "mnist-catrs-0.25"))
    assert "2.50" in shown([table], 140)[0]
    without_zeros = shown([table], 90)[0].split()
    assert without_zeros[-2:] == ["images", "n"]
    assert [title for title in without_zeros if re.fullmatch(r"\d\.\d\d", title)] == ["0.00", "0.25", "0.50"]
    note, titles, *_ = shown([table], 70)
    assert note == "60 images, n = 1,000."
    assert "images" not in titles
    assert titles.split()[0] == "sigma"
    _, titles, rule, *_ = shown([table], 55)
    assert titles.split()[0] == "method"
    assert "sigma 0.25" in rule


def test_rows_on_other_images_are_a_group_of_their_own_with_marks(tmp_path):
    write_recipes(tmp_path / "all", "mnist-gaussian-1.00", "mnist-catrs-1.00")
    write_recipes(tmp_path / "few", "mnist-macer-1.00", "mnist-stability-1.00", step=3)
    table = build_table([run.entry for run in read_runs([str(tmp_path)])])
    sizes = [{len(row.entry.results) for row in rows} for rows in table.groups()]
    assert sizes == [{60}, {20}], "the most images first"
    for rows in table.groups():
        best = max(rows, key=lambda row: row.acr.value)
        assert [row.marks["acr"] for row in rows] == ["best" if row is best else "second" for row in rows]
    assert sum("images" in line for line in shown([table], 60)[2:]) == 2, "headings tell the groups apart"


def test_corruptions_become_rows_where_their_columns_do_not_fit():
    networks = read_findings([str(Path(__file__).parents[2] / "results/mnist-c/mnist-catrs-0.25")]).corrupted
    (sheet,) = corruption_sheets(networks)
    assert len(shown([sheet], 300)) == 5
    lines = shown([sheet], 80)
    assert max(map(len, lines)) <= 80
    assert re.search(r"^fog +0\.\d{3}$", "\n".join(lines), re.M)
    assert sum("on mnist-c, sigma 0.25" in line for line in lines) == 2, "ACR and accuracy"


def test_a_terminal_gets_a_fitting_table_and_sees_the_progress(tmp_path):
    write_recipes(tmp_path, "mnist-gaussian-0.25", "mnist-catrs-0.25", "mnist-gaussian-1.00", "mnist-catrs-1.00")
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, "-m", "smoothcert", "report", str(tmp_path)])
    text = b""
    while True:
        try:
            text += (part := os.read(terminal, 65536))
        except OSError:  # Linux raises at the end
            break
        if not part:
            break
    assert os.waitpid(child, 0)[1] == 0
    assert b"Reading results" in text
    lines = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", text).decode().replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("CAT-RS") for line in lines) == 2
