"""Finding and reading results files and run folders, and unique titles for runs."""

import json
import re

import numpy as np
import pytest
from page_runs import make_run

from smoothcert.cli import main
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.report.sources import find_results, read_runs
from smoothcert.report.tables.table import build_table


def test_only_results_files_in_folders_are_found(folder, tmp_path):
    found = find_results([str(folder)])
    assert [path.parent.name for _, path in found] == ["catrs-0.25", "catrs-0.5", "gaussian-0.25", "gaussian-0.5"]
    assert find_results([f"mine={found[0][1]}"]) == [("mine", found[0][1])]
    (tmp_path / "soft-labels-x.tsv").write_text("idx\tlabel\tpredict\tcorrect\ttime\n")
    (tmp_path / "broken.tsv.gz").write_bytes(b"not gzip")
    with pytest.raises(UsageError, match="contains no certification results file"):
        find_results([str(tmp_path)])


def test_a_published_folder_is_named_after_its_dataset(shared):
    runs = read_runs([str(shared / "published/cifar10")])
    assert len(runs) == 20
    assert {run.entry.dataset for run in runs} == {"cifar10"}


def test_a_run_of_an_ablation_gets_its_row_in_the_paper(tmp_path, mini):
    name = "cifar10-resnet20-catrs-0.50-lambda2.00-seed1"
    path = make_run(tmp_path / "x", mini.labels.numpy()[:50], name=name, dataset="cifar10", method="catrs")
    (run,) = read_runs([str(path)])
    assert run.entry.name == "CAT-RS, lambda=2.00"
    assert build_table([run.entry], paper=True).rows[0].paper is not None


def test_given_names_that_clash_get_a_qualifier(folder):
    runs = read_runs(
        [f"same={folder / 'catrs-0.5' / 'certify.tsv'}", f"same={folder / 'gaussian-0.5' / 'certify.tsv'}"]
    )
    assert [run.entry.title for run in runs] == ["same (catrs-0.5)", "same (gaussian-0.5)"]


def test_titles_are_made_unique_by_the_first_difference(tmp_path, mini):
    labels = mini.labels.numpy()[:20]

    def titles():
        return [run.entry.title for run in read_runs([str(tmp_path)])]

    make_run(tmp_path / "one/net", labels)
    assert titles() == ["Gaussian"]
    make_run(tmp_path / "two/net-seed3", labels, seed=3)
    assert titles() == ["Gaussian, seed 0", "Gaussian, seed 3"]
    make_run(tmp_path / "two/net-seed3", labels, seed=3, options={"weight": 2.0})
    assert titles() == ["Gaussian", "Gaussian (seed3)"], "they differ in more than their seed"
    make_run(tmp_path / "three/net", labels)
    assert titles() == ["Gaussian (one)", "Gaussian (three)", "Gaussian (two)"], "one network, certified again"
    make_run(tmp_path / "two/net", labels)
    assert titles()[2:] == ["Gaussian (two/net/certify.tsv)", "Gaussian (two/net-seed3/certify.tsv)"]


def test_seeds_are_averaged_below_the_table(tmp_path, mini, capsys):
    for seed in (0, 1):
        make_run(tmp_path / f"net-seed{seed}", mini.labels.numpy()[:100], seed=seed)
    assert main(["report", str(tmp_path)]) == 0
    first, second, *_ = [line.split() for line in capsys.readouterr().out.splitlines() if "Gaussian" in line]
    assert main(["report", str(tmp_path), "--json"]) == 0
    *rows, mean = json.loads(capsys.readouterr().out)
    assert [row["title"] for row in rows] == ["Gaussian, seed 0", "Gaussian, seed 1"]
    assert [first[4][:5], second[4][:5]] == [f"{row['acr']['value']:.3f}" for row in rows]
    make_run(tmp_path / "mnist", mini.labels.numpy()[:100], dataset="mnist")
    assert main(["report", str(tmp_path)]) == 0
    assert re.search(r"^MNIST subset +0.50  Gaussian +2  ", capsys.readouterr().out, re.M), "with its dataset"
    assert mean["acr_mean"] == pytest.approx(np.mean([row["acr"]["value"] for row in rows]))


def test_a_damaged_file_in_the_run_folder_is_named(tmp_path, mini):
    make_run(tmp_path / "run", mini.labels.numpy()[:20])
    (tmp_path / "run/metrics.jsonl").write_text("{")
    with pytest.raises(SmoothcertError, match=r"metrics\.jsonl is damaged \(line 1 cannot be read as JSON"):
        read_runs([str(tmp_path / "run")])
