"""Repeating a run under its name: after a failed first attempt, and with settings that mean the same."""

import dataclasses
import inspect

import numpy as np
import pytest
from training_child import configure, train

import smoothcert
from smoothcert.cli import main
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.methods import METHODS
from smoothcert.methods.gaussian import Gaussian
from smoothcert.training.runs import train_run


def test_the_device_is_chosen_as_on_the_command_line(tmp_path):
    config = configure("gaussian", batch=512, epochs=1)
    with pytest.raises(UsageError, match="The device 'abacus' cannot be used here"):
        train_run(config, tmp_path, device="abacus")
    train_run(config, tmp_path, device="auto")
    assert inspect.signature(smoothcert.train_runs).parameters["device"].default == "auto"


def test_a_failed_first_attempt_does_not_block_the_name(tmp_path, few, monkeypatch):
    with pytest.raises(UsageError, match="Unknown model 'lenett'"):
        train(configure("gaussian", architecture="lenett"), tmp_path, few)

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Failing(Gaussian):
        name = "failing"

        def step(self, *args, **more):
            raise SmoothcertError("the first step fails")

    monkeypatch.setitem(METHODS, "failing", Failing)
    with pytest.raises(SmoothcertError, match="the first step fails"):
        train(configure("failing", options={}), tmp_path, few)
    corrected = configure("gaussian", epochs=1)
    assert train(corrected, tmp_path, few).is_file()
    assert smoothcert.load_recipe(tmp_path / "config.toml").epochs == 1
    with pytest.raises(UsageError, match=r"a different configuration \(different seed\)"):
        train(dataclasses.replace(corrected, seed=1), tmp_path, few)


def test_a_default_is_the_same_whether_given_or_not(tmp_path, few):
    short = {"epochs": 1, "batch": 64}
    plain = configure("consistency", options={}, **short)
    network = train(plain, tmp_path, few)
    stored = smoothcert.load_recipe(tmp_path / "config.toml")
    assert stored.options == {"num_noises": 2, "weight": 10.0, "entropy_weight": 0.5}
    same = [stored, *(configure("consistency", options={"weight": weight}, **short) for weight in (10, 10.0))]
    for config in same:
        assert train(config, tmp_path, few) == network
    with pytest.raises(UsageError, match=r"a different configuration \(different weight\)"):
        train(configure("consistency", options={"weight": 5.0}, **short), tmp_path, few)
    with pytest.raises(UsageError, match=r"a different configuration \(different method\)"):
        train(configure("gaussian", name=plain.name, **short), tmp_path, few)


def test_a_folder_that_states_fewer_options_can_be_repeated(tmp_path, few):
    config = configure("consistency", options={"weight": 5.0}, epochs=1, batch=64)
    network = train(config, tmp_path, few)
    stored = tmp_path / "config.toml"
    text = "".join(line for line in stored.read_text().splitlines(True) if not line.startswith(("num_", "entropy_")))
    stored.write_text(text)
    assert train(config, tmp_path, few) == network
    assert stored.read_text() == text
    with pytest.raises(UsageError, match=r"\(different num_noises\)"):
        train(dataclasses.replace(config, options={"weight": 5.0, "num_noises": 3}), tmp_path, few)


def test_a_dataset_with_a_relative_path_is_found_from_anywhere(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    images, labels = np.zeros((8, 28, 28), np.uint8), np.arange(8) % 2
    arrays = {"train_images": images, "train_labels": labels, "test_images": images[:4] + 1, "test_labels": labels[:4]}
    np.savez("tiny.npz", **arrays)
    flags = ["--dataset", "tiny.npz", "--name", "r", "--epochs", "1", "--batch", "4", "--device", "cpu"]
    assert main(["train", *flags]) == 0
    assert smoothcert.load_recipe(tmp_path / "runs/r/config.toml").dataset == "tiny.npz"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    certify = ["certify", str(tmp_path / "runs/r"), "--n", "20", "--device", "cpu"]
    assert main([*certify, "--json"]) == 0
    (tmp_path / "tiny.npz").rename(tmp_path / "moved.npz")
    capsys.readouterr()
    assert main(certify) == 1
    assert "tiny.npz does not exist" in (error := capsys.readouterr().err)
    assert "use `--data` if the training data is elsewhere" in error
    assert main([*certify, "--data", str(tmp_path / "moved.npz")]) == 0
