"""Tables: published results reproduce the paper's printed digits; marks, formats, baselines and messages."""

import csv
import dataclasses
import json
import math
import re

import numpy as np
import pytest

from smoothcert.cli import main
from smoothcert.errors import UsageError
from smoothcert.report.tables.entries import describe
from smoothcert.report.tables.formats import FORMATS, to_text
from smoothcert.report.tables.paper_numbers import PAPER_METHODS, paper_numbers, paper_row
from smoothcert.report.tables.table import build_table, to_json
from smoothcert.results.reader import read_results
from smoothcert.results.records import Results
from smoothcert.statistics import metrics

FILES = {
    "gaussian": "cohen", "stability": "stab", "smoothadv": "salman", "macer": "macer",
    "consistency": "consistency", "smoothmix": "smoothmix", "catrs": "cat-rs",
}  # fmt: skip
PUBLISHED = [
    (method, sigma) for method in FILES for sigma in ("0.25", "0.5", "1.0") if (method, sigma) != ("smoothmix", "1.0")
]


def published(shared, method, sigma):
    return shared / "published/cifar10" / f"{FILES[method]}-{sigma}.tsv"


@pytest.mark.parametrize(("method", "sigma"), [row for row in PUBLISHED if row != ("smoothmix", "0.5")])
def test_published_results_match_table_1_to_the_printed_digit(shared, method, sigma):
    printed = paper_row("cifar10", float(sigma), method)
    results = read_results(published(shared, method, sigma))
    assert f"{metrics.average_certified_radius(results.radius, results.correct):.3f}" == f"{printed.acr:.3f}"
    accuracy = 100 * metrics.certified_accuracy(results.radius, results.correct, metrics.radius_grid("cifar10"))
    assert [f"{value:.1f}" for value in accuracy] == [f"{value:.1f}" for value in printed.accuracy.values()]
    assert len(accuracy) == 11


def test_published_smoothmix_at_half_is_not_the_run_in_the_paper(shared):
    results = read_results(published(shared, "smoothmix", "0.5"))
    assert f"{metrics.average_certified_radius(results.radius, results.correct):.4f}" == "0.7356"
    assert paper_row("cifar10", 0.5, "smoothmix").acr == 0.737


@pytest.mark.parametrize("method", PAPER_METHODS)
def test_published_results_match_the_linf_table(shared, method):
    results = read_results(published(shared, method, "0.25"))
    printed = {
        row["key"]: row["value"]
        for row in paper_numbers()
        if row["table"] == "tab:l_infty_robustness" and row["method"] == method
    }
    accuracy = 100 * metrics.linf_accuracy(results.radius, results.correct, [0.0, 2 / 255], 3072)
    assert [f"{value:.1f}" for value in accuracy] == [printed["0"], printed["2/255"]]


def test_titles_of_linf_columns(shared, recwarn):
    entry = describe(read_results(published(shared, "catrs", "0.25")), dataset="cifar10")
    titles = to_text(build_table([entry], linf=(2 / 255, 0.01, 1e308))).splitlines()[0]
    assert "l_inf 2/255  l_inf 0.01  l_inf 1e+308" in titles
    assert not recwarn.list


def test_report_command_adds_the_papers_numbers(shared, capsys):
    files = [str(published(shared, method, sigma)) for method, sigma in PUBLISHED]
    assert main(["report", *files, "--dataset", "CIFAR-10", "--paper", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 20
    assert [row["method"] for row in rows[:7]] == list(PAPER_METHODS), "the paper's order"
    agree = [
        round(row["acr"]["value"], 3) == row["paper"]["acr"]
        and [f"{a:.1f}" for a in row["certified_accuracy"]]
        == [f"{a:.1f}" for a in row["paper"]["certified_accuracy"].values()]
        for row in rows
    ]
    assert sum(agree) == 19
    assert all(row["acr"]["low"] < row["acr"]["value"] < row["acr"]["high"] for row in rows)
    catrs = next(row for row in rows if row["method"] == "catrs" and row["sigma"] == 0.5)
    assert catrs["acr"]["standard_error"] == pytest.approx(0.0077, abs=1e-4)
    assert catrs["certified_accuracy_high_probability"][0] < catrs["certified_accuracy"][0]


def entry(name, radii, sigma=0.5, dataset="cifar10", correct=None, **settings):
    radius = np.array(radii, float)
    correct = np.ones(len(radius), bool) if correct is None else np.array(correct, bool)
    columns = {"idx": np.arange(len(radius)), "label": np.zeros(len(radius)), "predict": np.where(correct, 0, -1)}
    defaults = {"sigma": sigma, "n": 1000, "alpha": 0.001, "data": {"name": dataset}, "model": {"method": name}}
    about = {"settings": {**defaults, **settings}}
    return describe(Results(name, **columns, radius=radius, correct=correct, seconds=np.ones(len(radius)), about=about))


@pytest.fixture
def table():
    return build_table(
        [entry("smoothmix", [1.0, 0.6, 0.1]), entry("own_&_run", [1.2, 0.6, 0.0]), entry("gaussian", [0.3, 0.2, 0.1])]
    )


def test_best_and_second_best_are_marked_by_printed_value(table):
    gaussian, smoothmix, own = table.rows
    assert [row.entry.name for row in table.rows] == ["Gaussian", "SmoothMix", "own_&_run"]
    assert (own.marks["acr"], smoothmix.marks["acr"], gaussian.marks.get("acr")) == ("best", "second", None)
    assert smoothmix.marks["r2"] == own.marks["r2"] == "best", "ties as printed share a mark"
    assert "r10" not in own.marks, "a column of zeros has no best"


def test_rows_are_ranked_among_those_on_the_same_images():
    whole, again, part = entry("catrs", [1.0, 0.5]), entry("gaussian", [0.3, 0.2]), entry("macer", [2.0])
    assert build_table([whole, again]).rows[1].marks["acr"] == "best"
    marks = {row.entry.method: row.marks.get("acr") for row in build_table([whole, part, again]).rows}
    assert marks == {"catrs": "best", "gaussian": "second", "macer": None}, "a row alone on its images is not ranked"
    other = entry("macer", [2.0], sigma=1.0)
    assert build_table([whole, again, other]).rows[1].marks["acr"] == "best", "other noise levels are separate"


def test_each_protocol_is_marked_separately():
    sure = [entry(name, [radius], alpha=0.001) for name, radius in (("gaussian", 0.5), ("catrs", 0.7))]
    bold = [entry(name, [radius], alpha=0.1) for name, radius in (("gaussian", 0.9), ("catrs", 0.8))]
    marks = {(row.entry.method, row.entry.alpha): row.marks["acr"] for row in build_table([*sure, *bold]).rows}
    assert marks == {
        ("gaussian", 0.001): "second",
        ("catrs", 0.001): "best",
        ("gaussian", 0.1): "best",
        ("catrs", 0.1): "second",
    }


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_contains_every_acr(table, suffix):
    text = FORMATS[suffix](table)
    assert all(f"{row.acr.value:.3f}" in text for row in table.rows)
    assert text.endswith("\n")


def test_json_contains_every_acr(table):
    assert [row["acr"]["value"] for row in to_json(table)] == [row.acr.value for row in table.rows]


def test_csv_numbers_are_plain(table):
    first = next(csv.DictReader(FORMATS[".csv"](table).splitlines()))
    assert (int(first["n"]), float(first["sigma"]), float(first["0.25"])) == (1000, 0.5, 33.3)


def test_markdown_and_latex_mark_and_escape(table):
    markdown, latex = FORMATS[".md"](table), FORMATS[".tex"](table)
    assert "| **0.600** |" in markdown
    assert "| <u>0.567</u> |" in markdown
    assert r"own\_\&\_run & \textbf{0.600}" in latex
    assert r"\underline{0.567}" in latex
    widths = {line.count("|") for line in markdown.splitlines()}
    assert len(widths) == 1


def test_text_is_aligned(table):
    lines = to_text(table).splitlines()
    ends = [match.end() for match in re.finditer(r"\S+", lines[0])]
    assert [lines[2][end - 1] != " " for end in ends[2:]] == [True] * len(ends[2:])


def test_accuracy_bounds_use_the_number_of_images_and_alpha_of_the_row():
    """10,000 images, half of them certified at 0.25; Bernstein's slack at alpha 0.1 is 0.1 + 0.01115 + 0.00023."""
    many = entry("catrs", [0.3] * 5000 + [0.1] * 5000, alpha=0.1)
    few = entry("gaussian", [0.3] * 50 + [0.1] * 50)
    first, second = sorted(to_json(build_table([many, few])), key=lambda row: row["images"])
    assert first["certified_accuracy_standard_error"][:2] == [0.0, 5.0]
    assert second["certified_accuracy_standard_error"][:2] == [0.0, 0.5]
    assert second["certified_accuracy_high_probability"][:3] == pytest.approx([88.862, 38.862, 0.0], abs=1e-3)


def test_a_table_of_several_datasets_has_a_dataset_column():
    table = build_table([entry("gaussian", [0.3]), entry("gaussian", [0.9], dataset="mnist")], paper=True)
    titles, _, cifar10, paper, _, mnist, _ = to_text(table).splitlines()
    assert titles.split()[:3] == ["dataset", "sigma", "method"]
    assert (cifar10.split()[:2], mnist.split()[:2]) == (["CIFAR-10", "0.50"], ["MNIST", "0.50"])
    assert paper.index("paper") > cifar10.index("Gaussian"), "below its name"
    lines = FORMATS[".csv"](table).splitlines()
    assert len({len(row) for row in csv.reader(lines)}) == 1
    assert lines[1].startswith("CIFAR-10,0.50,Gaussian,0.300")
    assert FORMATS[".tex"](table).startswith(r"\begin{tabular}{lrlr")
    assert "dataset" not in to_text(build_table([entry("gaussian", [0.3])]))


def test_default_radii_depend_on_the_dataset():
    assert build_table([entry("a", [1.0], dataset="imagenet", sigma=1.0)]).radii == (0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5)
    assert build_table([entry("a", [1.0], dataset="cifar100")]).radii[-1] == 1.75
    assert build_table([entry("a", [1.0])], radii=[0.1, 0.2]).radii == (0.1, 0.2)
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="`radii` to be finite numbers >= 0"):
            build_table([entry("a", [1.0])], radii=[0.5, wrong])


def test_a_baseline_gives_paired_differences(table):
    entries = [row.entry for row in table.rows]
    compared = build_table(entries, baseline="gaussian")
    assert compared.rows[0].difference is None
    assert compared.rows[1].difference.value == pytest.approx((0.7 + 0.4 + 0.0) / 3)
    with pytest.raises(UsageError, match="Unknown baseline 'nobody'; known: Gaussian"):
        build_table(entries, baseline="nobody")
    louder = [entry("gaussian", [0.9, 0.8, 0.1], sigma=1.0), entry("catrs", [1.0, 1.0, 0.1], sigma=1.0)]
    *_, compared = build_table([*entries, *louder], baseline="gaussian").rows
    assert compared.difference.value == pytest.approx((0.1 + 0.2 + 0.0) / 3), "baseline of its noise level"


@pytest.mark.parametrize(("change", "message"), [({"n": 10}, "n = 10 and 100,000"), ({}, "on different images")])
def test_incomparable_results_raise(table, change, message):
    first, second = (dataclasses.replace(row.entry, n=100_000) for row in table.rows[:2])
    labels = second.results.label if change else second.results.label + 1
    other = dataclasses.replace(second, results=dataclasses.replace(second.results, label=labels), **change)
    with pytest.raises(UsageError, match=message):
        build_table([first, other], baseline=first.name)


@pytest.mark.parametrize("stop", [{}, {"stop": {"rule": "table"}}])
def test_unfinished_results_are_reported(tmp_path, capsys, stop):
    """With sequential stopping, easy images finish first, so the message warns of bias."""
    (tmp_path / "own-0.5.tsv").write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.5\t1\t2.0\n")
    about = {"settings": {"sigma": 0.5, "images": "0:30:10", **stop}}
    (tmp_path / "own-0.5.json").write_text(json.dumps(about))
    assert main(["report", str(tmp_path / "own-0.5.tsv")]) == 0
    said = capsys.readouterr().err
    assert "1 of 3 images so far." in said
    assert ("numbers are biased" in said) == bool(stop)


def test_unwritable_output_is_an_error(tmp_path, capsys):
    file = tmp_path / "own-0.5.tsv"
    file.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.5\t1\t2.0\n")
    assert main(["report", str(file), "--out", str(file / "table.md")]) == 1
    assert "table.md cannot be written" in capsys.readouterr().err


def test_one_image_has_no_standard_error(tmp_path, capsys):
    file = tmp_path / "own-0.5.tsv"
    file.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.5\t1\t2.0\n")
    assert main(["report", str(file), "--json"]) == 0

    def reject(constant):
        raise AssertionError(f"{constant} is not valid JSON")

    (row,) = json.loads(capsys.readouterr().out, parse_constant=reject)
    assert row["acr"] == {"value": 0.5, "standard_error": None, "low": 0.5, "high": 0.5}
    assert main(["report", str(file)]) == 0
    assert "nan" not in capsys.readouterr().out


def test_a_file_name_with_an_impossible_noise_level_is_ignored():
    results = entry("x", [0.1, 3.0]).results
    renamed = Results(
        "catrs-0.25", results.idx, results.label, results.predict, results.radius, results.correct, results.seconds
    )
    assert describe(renamed).sigma is None, "radius 3 is impossible at sigma 0.25"


def test_the_papers_numbers_are_finite():
    assert len(paper_numbers()) > 2500
    assert all(np.isfinite(float(row["value"])) for row in paper_numbers())
