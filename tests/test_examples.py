"""The examples run as they stand, and print what they promise."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name):
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True)
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


def test_own_resnet50():
    assert re.search(r"prediction \d+, radius 0\.\d+, votes 24 of 24", run("own_resnet50.py"))


@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_every_example_has_a_test(example):
    assert f'run("{example}")' in Path(__file__).read_text()
