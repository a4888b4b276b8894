"""Runs that were interrupted at an older commit finish with today's code as they would have then."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from launching import environment
from safetensors.torch import load_file

OLD = Path(__file__).parents[1] / "data/resume"
TEACHER, LABELS = "tiny-cifar_resnet20-teacher-791fc1", "soft-labels-8d86fe5efd44"


def same_environment():
    """True if the arithmetic of this machine is that of the machine which wrote the files."""
    here = {"torch": torch.__version__, "cpu_capability": torch.backends.cpu.get_cpu_capability()}
    return here == json.loads((OLD / "environment.json").read_text())


def run_smoothcert(folder, *arguments):
    command = [sys.executable, "-m", "smoothcert", *arguments, "--device", "cpu"]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def read_rows(path):
    """Return the rows of a table without the column `time`."""
    header, *rows = (line.split("\t") for line in path.read_text().splitlines())
    kept = [place for place, name in enumerate(header) if name != "time"]
    return [[row[place] for place in kept] for row in (header, *rows)]


@pytest.fixture(scope="module")
def resumed_runs(tmp_path_factory):
    """The runs folder after the interrupted training was resumed."""
    folder = tmp_path_factory.mktemp("resumed")
    for name in ("tiny.npz", "catrs.toml"):
        shutil.copy(OLD / name, folder)
    shutil.copytree(OLD / "training/interrupted", folder / "runs")
    run_smoothcert(folder, "train", "catrs.toml", "--runs", "runs")
    return folder / "runs"


def test_training_resumes_to_the_same_weights(resumed_runs):
    tolerance = {"rtol": 0, "atol": 0} if same_environment() else {"rtol": 1e-5, "atol": 1e-5}
    folders = resumed_runs / "catrs", OLD / "training/finished"
    weights, expected = (load_file(folder / "model.safetensors") for folder in folders)
    assert weights.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(weights[name], tensor, **tolerance)


def test_training_resumes_at_the_step_where_it_was_interrupted(resumed_runs):
    segments = json.loads((resumed_runs / "catrs/segments.json").read_text())
    assert segments[0] == json.loads((OLD / "training/interrupted/catrs/segments.json").read_text())[0]
    assert [segment["first_step"] for segment in segments] == [0, 19]
    before = (OLD / "training/interrupted/catrs/metrics.jsonl").read_text()
    metrics = (resumed_runs / "catrs/metrics.jsonl").read_text()
    assert metrics.startswith(before)
    assert len(metrics.splitlines()) == len((OLD / "training/finished/metrics.jsonl").read_text().splitlines()) == 6


def test_the_teacher_and_its_soft_labels_are_found_under_their_old_names(resumed_runs):
    assert sorted(path.name for path in resumed_runs.iterdir()) == ["catrs", TEACHER]
    assert {path.name.split(".")[0] for path in (resumed_runs / TEACHER).glob("soft-labels-*")} == {LABELS}
    for path in (OLD / "training/interrupted" / TEACHER).iterdir():
        assert (resumed_runs / TEACHER / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "flags", "first"),
    [("fixed", [], {"first_row": 3}), ("table", ["--stop", "table"], {"first_look": 8})],
)
def test_certification_resumes_to_the_same_rows(tmp_path, rule, flags, first):
    before, expected, out = OLD / f"certify-{rule}/interrupted", OLD / f"certify-{rule}/finished", tmp_path / "out"
    shutil.copytree(before, out)
    arguments = ["--pretrained", "mnist-catrs-0.50", "--data", "mnist-mini", "--n", "20000", "--max", "12", *flags]
    run_smoothcert(tmp_path, "certify", *arguments, "--out", "out/certify.tsv")
    segments = json.loads((out / "certify.json").read_text())["segments"]
    assert len(segments) == 2
    assert first.items() <= segments[1].items(), "nothing was computed again"
    for path in before.glob("*.tsv"):
        kept = set(path.read_text().splitlines())  # with their times
        assert kept <= set((out / path.name).read_text().splitlines()), path.name
    for path in expected.glob("*.tsv"):
        rows, old = read_rows(out / path.name), read_rows(path)
        if same_environment():
            assert rows == old, path.name
        else:  # a vote or two may differ
            assert [row[:1] for row in rows] == [row[:1] for row in old], path.name
