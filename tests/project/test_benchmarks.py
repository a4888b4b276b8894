"""Run benchmarks at the smallest sizes: that they work, not how fast anything is."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_own_network(tmp_path):
    sizes = "--data mnist-mini --width 2 --images 32 --epochs 1 --batch 32 --label-samples 4 --certify 2 --n 20"
    command = [sys.executable, BENCHMARKS / "own_network.py", *sizes.split(), "--device", "cpu", "--precision", "fp32"]
    done = subprocess.run([*command, "--seconds", "0", "--json", tmp_path / "out.json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "out.json").read_text())
    assert figures["ms per step"].keys() == {"eager, as published", "eager, method.step", "train"}
    assert figures["certified images"] == 2
    assert len(figures["accuracy under noise, per epoch"]) == 1
    assert "train              " in done.stdout
    assert "x as fast as eager, as published" in done.stdout


@pytest.mark.slow
def test_the_steps_of_the_targets(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    targets = runpy.run_path(str(BENCHMARKS / "targets.py"))
    measured = targets["measure_step"]("lenet", torch.device("cpu"), 0.0)
    assert measured["ratio"] == measured["published"] / measured["ours"]
