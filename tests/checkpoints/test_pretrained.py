"""Bundled pretrained models."""

import json
import shutil

import pytest

import smoothcert
from smoothcert.checkpoints import pretrained
from smoothcert.cli import main
from smoothcert.errors import SmoothcertError, UsageError


def test_a_damaged_list_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    for text in (None, "{", "\xff"):
        if text:
            (tmp_path / "networks.json").write_bytes(text.encode("latin-1"))
        assert main(["list", "pretrained"]) == 1
        assert "install smoothcert again" in capsys.readouterr().err


@pytest.mark.parametrize("name", smoothcert.list_pretrained())
def test_every_network_is_what_its_recipe_says(name):
    checkpoint, recipe = smoothcert.load_pretrained(name), smoothcert.load_recipe(name)
    assert checkpoint.about["sigma"] == recipe.sigma
    assert (checkpoint.about["method"], checkpoint.about["dataset"]) == (recipe.method, recipe.dataset)
    assert checkpoint.model.architecture == recipe.architecture


def test_the_list_shows_the_acr(capsys):
    assert main(["list", "pretrained", "*resnet20*"]) == 0
    line = capsys.readouterr().out.splitlines()[-1].split()
    expected = ["cifar10-resnet20-catrs-0.50", "CIFAR-10", "cifar_resnet20", "CAT-RS", "0.50", "0.708", "1,000"]
    assert line == expected
    assert main(["list", "pretrained", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == smoothcert.list_pretrained()


def test_a_network_classifies(mini):
    model = smoothcert.load_pretrained("mnist-catrs-0.50").model.eval()
    smoothed = smoothcert.SmoothedClassifier(model, 0.5, 10)
    found = smoothed.predict(mini.floats(range(0, 1000, 20)), n=100)
    assert (found == mini.labels[::20]).float().mean() > 0.9


def test_the_command_line_takes_a_name(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["certify", "--pretrained", "mnist-catrs-0.25", "--data", "mnist-mini", "--n", "100", "--max", "3"]
    assert main(arguments) == 0
    assert "CAT-RS" in capsys.readouterr().out
    assert len(list((tmp_path / "runs" / "mnist-catrs-0.25").glob("certify-*.tsv"))) == 2
    assert main([*arguments, "a.safetensors"]) == 2
    assert main(["certify", "--data", "mnist-mini"]) == 2
    assert main(["certify", "--pretrained", "mnist-catrs-0.5"]) == 2
    assert "did you mean 'mnist-catrs-0.50'" in capsys.readouterr().err


def test_a_damaged_network_is_refused(tmp_path, monkeypatch):
    shutil.copytree(pretrained.FOLDER, tmp_path / "zoo")
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "zoo")
    file = tmp_path / "zoo" / "mnist-catrs-0.25.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(SmoothcertError, match="is missing or damaged"):
        smoothcert.load_pretrained("mnist-catrs-0.25")
    with pytest.raises(UsageError, match="Unknown pretrained model"):
        smoothcert.load_pretrained("nothing")
