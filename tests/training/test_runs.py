"""Whole runs from Python and the command line: teachers, soft labels, training, certification."""

import json
import sys
import time
import traceback
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from training_child import configure

import smoothcert
from smoothcert.cli import main
from smoothcert.errors import Notice
from smoothcert.methods import METHODS
from smoothcert.methods.gaussian import Gaussian
from smoothcert.runtime.deadline import OutOfTimeError
from smoothcert.training.runs import train_run
from smoothcert.training.soft_labels import make_soft_labels
from smoothcert.training.teachers import teacher_config


def test_a_methods_loss_is_five_frames_below_train_run(tmp_path, monkeypatch):
    """The road that a reader follows: the frames between `train_run` and `Method.step`, but for checks of arguments."""
    roads, takes_frame = [], "call"

    @dataclass(frozen=True, kw_only=True)
    class Traced(Gaussian):
        name = "traced"

        def step(self, *args, **more):
            names = [frame.f_code.co_name for frame, _ in traceback.walk_stack(sys._getframe(1))]
            roads.append([name for name in names[: names.index("train_run")][::-1] if name != takes_frame])
            return super().step(*args, **more)

    monkeypatch.setitem(METHODS, "traced", Traced)
    smoothcert.register_method(Traced)
    train_run(configure("traced", options={}, epochs=1, batch=512), tmp_path)
    assert roads[-1] == ["train_runs", "fit_together", "train_loop", "take_step", "loss"]


def test_teachers_are_shared_only_if_all_settings_are_the_same():
    config = configure("catrs", dataset="my data.npz")
    name = teacher_config(config).name
    assert name.startswith("my-data-lenet-teacher-")
    assert teacher_config(configure("catrs", dataset="my data.npz", sigma=1.0, seed=3)).name == name
    labels = {"label_samples": 99, "label_view": "augmented"}  # do not affect the teacher
    assert teacher_config(configure("catrs", dataset="my data.npz", **labels)).name == name
    assert teacher_config(configure("catrs", dataset="other/my data.npz")).name != name
    assert teacher_config(configure("catrs", dataset="my data.npz", learning_rate=0.1)).name != name
    assert teacher_config(configure("catrs", dataset="my data.npz", network="a1")).name != name
    tuned = {"dataset": "my data.npz", "init": "weights.pt"}  # their names are those of earlier versions
    earlier = teacher_config(configure("catrs", **tuned))
    assert teacher_config(configure("catrs", initial_weights="a1", **tuned)).name == earlier.name


def test_soft_labels_are_votes_made_once(trained_lenet, few, tmp_path):
    smoothcert.save_checkpoint(tmp_path / "model.safetensors", trained_lenet, sigma=0.25, dataset="mnist-mini")
    seen = []
    labels = make_soft_labels(tmp_path, few, samples=30, on_progress=seen.append)
    assert labels.shape == (100, 10)
    assert torch.allclose(labels.sum(dim=1), torch.ones(100))
    smoothed = smoothcert.SmoothedClassifier(trained_lenet, 0.25, 10, micro_batch=30)
    assert torch.equal(smoothed.counts(few.floats([0, 1]), 30).float() / 30, labels[:2])
    seen.clear()
    assert torch.equal(make_soft_labels(tmp_path, few, samples=30, on_progress=seen.append), labels)
    assert not seen, "nothing is computed twice"
    make_soft_labels(tmp_path, few, samples=31)
    make_soft_labels(tmp_path, few, samples=30, augmentation="crop-flip")
    make_soft_labels(tmp_path, few, samples=30, sigma=1.0)
    smoothcert.save_checkpoint(tmp_path / "model.safetensors", smoothcert.create_model("lenet"), sigma=0.25)
    make_soft_labels(tmp_path, few, samples=30)
    assert len(list(tmp_path.glob("soft-labels-*.json"))) == 5, "one file per setting and network"


def test_catrs_trains_its_teacher_and_keeps_it(tmp_path):
    np.savez(
        tmp_path / "small.npz",
        **{f"{split}_images": np.zeros((64, 28, 28), np.uint8) for split in ("train", "test")},
        **{f"{split}_labels": np.arange(64) % 4 for split in ("train", "test")},
    )
    config = configure("catrs", dataset=str(tmp_path / "small.npz"), epochs=1, label_samples=4)
    stages = []

    def watch(kind, name):
        stages.append((kind, name))
        return lambda progress: None

    with pytest.warns(Notice, match="small has no separate test images: accuracy is measured on the training images"):
        file = train_run(config, str(tmp_path / "runs"), on_stage=watch)
    assert file == tmp_path / "runs/test-catrs/model.safetensors"
    teacher = teacher_config(config)
    assert [kind for kind, _ in stages] == ["train", "label", "train"]
    assert stages[0][1] == teacher.name
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [teacher.name, "test-catrs"]
    stages.clear()
    train_run(config, tmp_path / "runs", on_stage=watch)
    assert not stages
    with pytest.warns(Notice):
        train_run(
            configure("catrs", dataset=config.dataset, epochs=1, label_samples=4, name="other", seed=7),
            tmp_path / "runs",
            on_stage=watch,
        )
    assert [name for kind, name in stages if kind == "train"] == ["other"], "the teacher serves every seed"


def test_soft_labels_use_the_view_and_noise_of_the_configuration(tmp_path, monkeypatch):
    from smoothcert.training import prepare

    asked = []

    def note(teacher, data, **how):
        asked.append((how["sigma"], how["samples"], how["augmentation"]))
        return torch.nn.functional.one_hot(data.labels, 10).float()

    monkeypatch.setattr(prepare, "make_soft_labels", note)
    same = {"dataset": "mnist-mini", "augmentation": "crop-flip", "epochs": 1, "batch": 8, "teacher": "any"}
    same |= {"sigma": 0.5, "label_sigma": 0.12, "label_samples": 7}
    for view in ("clean", "augmented"):
        with pytest.raises(OutOfTimeError):
            train_run(configure("catrs", name=view, label_view=view, **same), tmp_path, time_limit=0.0)
    assert asked == [(0.12, 7, "none"), (0.12, 7, "crop-flip")]


def test_a_time_limit_covers_all_stages(tmp_path, monkeypatch):
    from smoothcert.training import prepare, runs

    limits = []

    def label(teacher, data, *, on_progress, **_):
        time.sleep(0.05)
        on_progress(SimpleNamespace(done=1, total=2))
        return torch.nn.functional.one_hot(data.labels, 10).float()

    monkeypatch.setattr(prepare, "make_soft_labels", label)
    monkeypatch.setattr(runs, "fit_together", lambda ready, limit, progress: limits.append(limit))
    config = configure("catrs", teacher="any")
    train_run(config, tmp_path, time_limit=1000)
    assert 900 < limits[0] <= 1000 - 0.05
    with pytest.raises(OutOfTimeError):
        train_run(config, tmp_path, time_limit=0.01)
    assert len(limits) == 1, "stopped at the labels"


def test_the_command_line_trains_and_certifies(tmp_path, capsys):
    command = [
        "train",
        "--name",
        "quick",
        "--dataset",
        "mnist-mini",
        "--epochs",
        "1",
        "--batch",
        "64",
        "--runs",
        str(tmp_path),
    ]
    command += ["--method", "consistency", "--weight", "1", "--learning-rate", "0.02", "--device", "cpu", "--json"]
    assert main(command) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["test_accuracy"] > 30
    assert "quick:" in captured.err
    assert "accuracy under noise" in captured.err
    assert f"epoch {json.loads(captured.out)['epoch']}, loss" in captured.err, "the same number as in the metrics"
    assert main(command) == 0
    assert "is already finished" in capsys.readouterr().err
    assert main([*command, "--seed", "3"]) == 2
    error = capsys.readouterr().err
    assert "different configuration" in error
    assert "is already finished" not in error
    assert main(["certify", str(tmp_path / "quick"), "--n", "100", "--skip", "250", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["method"], row["sigma"], row["dataset"]) == ("consistency", 0.25, "mnist-mini")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mnist-catrs-0.5"], "did you mean 'mnist-catrs-0.50'"),
        (["--method", "gaussian", "--weight", "2"], "has no option `--weight`"),
        (["--sigma", "-1"], "`--sigma` to be > 0"),
        (["--dataset", "mnist-mini", "--architecture", "lenett"], "did you mean 'lenet'"),
        (
            ["--dataset", "mnist-mini", "--precision", "fp64"],
            "`--precision` to be one of fp32, tf32, bf16, but got",
        ),
    ],
)
def test_wrong_training_commands(arguments, message, tmp_path, capsys):
    assert main(["train", *arguments, "--runs", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("time", ["inf", "nan", "0", "soon", ""])
def test_wrong_times(time, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["train", "mnist-gaussian-0.25", "--time-limit", time])
    assert f"expected a time such as 90s, 9m or 1.5h, but got {time!r}" in capsys.readouterr().err


@pytest.mark.slow
def test_dry_run_prints_configuration_and_cost(tmp_path, capsys):
    arguments = [
        "train",
        "--dataset",
        "mnist-mini",
        "--epochs",
        "7",
        "--method",
        "catrs",
        "--runs",
        str(tmp_path),
        "--dry-run",
    ]
    assert main([*arguments, "--num-noises", "2", "--attack-steps", "1", "--label-samples", "10"]) == 0
    captured = capsys.readouterr()
    assert "epochs = 7" in captured.out
    assert "num_noises = 2" in captured.out
    assert "336 steps of" in captured.err
    assert "teacher" in captured.err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_dry_run_as_json(tmp_path, capsys):
    """One JSON object, or a list of them for several recipes, alone on stdout."""
    recipes = ["mnist-mini-gaussian-1.00", "mnist-gaussian-0.25"]
    rest = ["--dry-run", "--json", "--runs", str(tmp_path), "--dataset", "mnist-mini", "--device", "cpu"]
    assert main(["train", recipes[0], *rest]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["config"]["name"], plan["config"]["sigma"], plan["teacher"]) == (recipes[0], 1.0, 0)
    assert plan["training"] > 0
    assert main(["train", *recipes, *rest]) == 0
    assert [plan["config"]["name"] for plan in json.loads(capsys.readouterr().out)] == recipes


def test_several_runs_as_json(tmp_path, capsys):
    for name in ("a", "b"):
        lines = [f'name = "{name}"', 'dataset = "mnist-mini"', "epochs = 1", "batch = 512"]
        (tmp_path / f"{name}.toml").write_text("\n".join(lines))
    command = ["train", str(tmp_path / "a.toml"), str(tmp_path / "b.toml"), "--runs", str(tmp_path), "--json"]
    assert main([*command, "--device", "cpu"]) == 0
    assert [last["run"] for last in json.loads(capsys.readouterr().out)] == ["a", "b"]
