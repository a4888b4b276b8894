"""Run the examples and check their output."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from run_notebook import run_notebook

EXAMPLES = Path(__file__).parents[2] / "examples"
NETWORKS = ("Gaussian, 5 epochs", "CAT-RS, bundled")  # of the tour


def run(name, *arguments):
    done = subprocess.run([sys.executable, EXAMPLES / name, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_quickstart():
    out = run("quickstart.py")
    assert "label 7, prediction 7" in out
    assert float(re.search(r"below (\d\.\d+)", out)[1]) > 0.4


def test_any_classifier():
    claimed, true = (float(number) for number in re.findall(r"(\d\.\d{3})", run("any_classifier.py")))
    assert 0.3 * true < claimed < true


def test_vectors():
    rows = re.findall(r"label (\d), prediction +(-?\d), radius (\d\.\d+)", run("vectors.py"))
    assert len(rows) == 10
    assert sum(label == prediction for label, prediction, _ in rows) >= 8


@pytest.mark.slow
def test_own_resnet50():
    votes = re.search(r"prediction \d+, radius 0\.\d+, votes (\d+) of 24", run("own_resnet50.py"))[1]
    assert int(votes) > 12


@pytest.fixture
def example_packages(monkeypatch):
    """Put the packages of `examples/requirements.txt`, which `make test-slow` installs, on the path of examples."""
    folder = EXAMPLES.parent / ".cache/examples"
    if not (folder / "qonnx").is_dir():
        pytest.skip("`make test-slow` installs the packages of the examples")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)


@pytest.mark.slow
def test_denoised(example_packages, sample_data):
    arguments = "--every", "25", "--skip", "10", "--n", "15"
    out = run("denoised.py", sample_data / "imagenet-sample", *arguments)
    alone, denoised = (float(votes) for votes in re.findall(r"(\d+\.\d) % of votes correct", out))
    assert alone < 10 < 20 < denoised, out


@pytest.mark.slow
def test_onnx_model(example_packages):
    out = run("onnx_model.py")
    assert float(re.search(r"radius: (\d\.\d+)", out)[1]) > 0.45
    assert float(re.search(r"0\.5: (\d+\.\d) %", out)[1]) > 90


@pytest.mark.slow
def test_own_method():
    correct, radius = re.search(
        r"(\d+) of 20 images correct, average certified radius (\d\.\d+)", run("own_method.py")
    ).groups()
    assert int(correct) >= 12
    assert float(radius) > 0.3
    assert len((EXAMPLES / "own_method.py").read_text().splitlines()) < 60


@pytest.mark.slow
def test_tour(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stored = json.loads((EXAMPLES / "tour.ipynb").read_text())
    outputs = [
        {kind: value for output in cell["outputs"] for kind, value in output.get("data", output).items()}
        for cell in run_notebook(EXAMPLES / "tour.ipynb")["cells"]
        if cell["cell_type"] == "code"
    ]
    shown = "\n".join("".join(output.get("text/plain", "") or output.get("text", "")) for output in outputs)
    gaussian, catrs = (float(re.search(rf"^{name} +100 .*?(\d\.\d+) +\d\.\d+$", shown, re.M)[1]) for name in NETWORKS)
    assert catrs > gaussian > 0.6
    assert sum("image/png" in output for output in outputs) == 1
    assert all(cell["outputs"] for cell in stored["cells"][2:] if cell["cell_type"] == "code"), "stored with outputs"
    assert str(Path.home()) not in json.dumps(stored)


@pytest.mark.slow
def test_demo(tmp_path):
    out = run("demo.py", tmp_path)
    gaussian, catrs = (float(re.search(rf"{name} +(\d\.\d+)", out)[1]) for name in ("Gaussian", "CAT-RS"))
    assert catrs > gaussian > 1.0
    assert re.search(r"CAT-RS is better.*: ACR \+0\.\d+", out)
    assert (tmp_path / "certified-accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert "Gaussian" in run("demo.py", tmp_path)  # a second run reuses the results of the first


@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_every_example_has_a_test(example):
    assert f'run("{example}"' in Path(__file__).read_text()
