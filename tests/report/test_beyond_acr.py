"""The report beyond ACR, on kept results: best rows, fewer votes, cost, p_A and gray cells."""

import csv
import json
from pathlib import Path

import pytest

from smoothcert.cli import main
from smoothcert.results.reader import read_counts, read_results

RESULTS = Path(__file__).parents[2] / "results/mnist"
RUNS = [str(RESULTS / f"mnist-{name}") for name in ("gaussian-0.25", "gaussian-1.00", "catrs-1.00")]


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / "table.json"
    assert main(["report", *RUNS, "--beyond-acr", "--gray", "--out", str(out)]) == 0
    return json.loads(out.read_text())


def test_the_best_row_of_each_radius_is_named(values):
    rows = [row for row in values if "certified_accuracy" in row and "radii" in row]
    best = [row for row in values if "best_at" in row]
    assert [row["best_at"] for row in best] == rows[0]["radii"]
    for place, row in enumerate(best):
        assert row["certified_accuracy"] == max(other["certified_accuracy"][place] for other in rows)
    assert {row["sigma"] for row in best} == {0.25, 1.0}


def test_cost_and_fewer_votes(values):
    found = {(row["title"], row["sigma"]): row for row in values if "acr_at_fewer_votes" in row}
    assert {key: row["cost"] for key, row in found.items()} == {
        ("Gaussian", 0.25): 90 * 3,
        ("Gaussian", 1.0): 90 * 3,
        ("CAT-RS", 1.0): 150 * 4 * 14,
    }
    acr = found["CAT-RS", 1.0]["acr_at_fewer_votes"]
    assert list(acr) == ["100", "1000", "10000"]
    assert acr["100"] < acr["1000"] < acr["10000"] < 1.829


def test_gray_cells_are_worse_than_gaussian_training(capsys, tmp_path):
    out = tmp_path / "table.md"
    assert main(["report", *RUNS[1:], "--gray", "--out", str(out)]) == 0
    gaussian, catrs = [line.split()[2:] for line in capsys.readouterr().out.splitlines()[2:]]
    accuracy = [[float(text.rstrip("*_-")) for text in line[2:13]] for line in (gaussian, catrs)]
    assert [text.endswith("-") for text in catrs[2:13]] == [own < other for other, own in zip(*accuracy, strict=True)]
    assert not any(text.endswith("-") for text in gaussian[2:13])
    assert out.read_text().count('<span style="color:gray">') == sum(text.endswith("-") for text in catrs[2:13]) > 0
    assert main(["report", *RUNS[1:]]) == 0
    assert "93.0-" not in capsys.readouterr().out, "only on demand"


def test_the_distribution_of_p_a_is_exported(tmp_path, capsys):
    out = tmp_path / "p_a.csv"
    assert main(["report", RUNS[2], "--p-a", str(out)]) == 0
    rows = list(csv.DictReader(out.open()))
    assert len(rows) == 101
    (path,) = (RESULTS / "mnist-catrs-1.00").glob("certify-*0.tsv.gz")
    labels, votes = read_results(path).label, read_counts(path, 10)[1]
    below = sum(2 * row[label] <= 100_000 for row, label in zip(votes.tolist(), labels.tolist(), strict=True))
    assert float(rows[50]["share"]) == below / len(labels)
    assert float(rows[100]["share"]) == 1.0
