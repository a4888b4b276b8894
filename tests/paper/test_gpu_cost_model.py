"""The model of cost: it gives back what it was made from, and the page shows what it gives."""

import json
import runpy
from pathlib import Path

import pytest

import smoothcert
from smoothcert.cli import main
from smoothcert.paper.gpu_cost_model import RATES, run_cost, step_seconds, table_configs, table_seconds
from smoothcert.training.recipes import paper_tables

ROOT = Path(smoothcert.__file__).parents[2]


def test_it_gives_back_the_measured_steps():
    """Of benchmarks/README.md: compiled steps of LeNet on one H200."""
    assert step_seconds(smoothcert.load_recipe("mnist-catrs-0.50")) == pytest.approx(1.00e-3, rel=0.1)
    assert step_seconds(smoothcert.load_recipe("mnist-smoothadv-0.50")) == pytest.approx(1.88e-3, rel=0.1)


def test_more_gpus_take_less_time_until_passes_cannot_get_shorter():
    config = smoothcert.load_recipe("imagenet-catrs-1.00")
    one, eight, many = (run_cost(config, gpus, skip=100) for gpus in (1, 8, 64))
    assert one.total > 6 * eight.total
    assert eight.certification == pytest.approx(one.certification / 8)
    assert many.total < eight.total
    assert many.training > 14 * RATES["resnet50"].shortest, "however few images each has"
    assert one.memory > eight.memory > many.memory
    for name in ("mnist", "cifar10", "imagenet"):
        times = [table_seconds(table_configs(name), gpus, skip=paper_tables()[name].skip) for gpus in (1, 8, 64)]
        assert times == sorted(times, reverse=True)


def test_the_page_shows_the_tables():
    page, script = (ROOT / "docs/scaling.md").read_text(), runpy.run_path(str(ROOT / "scripts/scaling.py"))
    assert script["tables"]() in page, "run scripts/scaling.py and paste what it prints"
    assert script["imagenet"]() in page


def test_plan_on_the_command_line(capsys):
    assert main(["train", "imagenet-catrs-1.00", "--plan", "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)
    assert [line["gpus"] for line in lines] == [1, 8, 64]
    assert lines[0]["training"] > lines[1]["training"] > 0
    assert main(["train", "mnist-catrs-0.50", "--plan"]) == 0
    assert "64 GPUs: training" in capsys.readouterr().out
    assert main(["train", "--dataset", "mine.npz", "--plan"]) == 2
    assert "try `--dry-run`" in capsys.readouterr().err
