"""Wrong command lines: one line on stderr, no traceback, nothing written elsewhere, little memory."""

import contextlib
import io
import os
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from watching import watched

import smoothcert
from smoothcert.cli import main

FEW, MANY = 60, 2500
COUNTS = ["0", "-1", "1", "3", "9" * 25, "9" * 5000, "1e3", "x", "½", "1_0"]
SIZES = [*COUNTS, str(2**31), str(2**40), str(2**63)]
NUMBERS = ["0", "-1", "0.1", "nan", "inf", "-inf", "1e-320", "1e308", "9" * 400, "x", "0x10"]
NAMES = [
    *("lenet", "mnist", "no-such", "", "[bold]", "\x1b[31m", "\ud800", "é", "[", "x" * 300, "y" * 5000, "c\0d", "fp32"),
    *("bf16", "cpu", "cuda:99", "meta", "folded", "gaussian", "uniform", "l2", "linf", "two-sided", "train", "1/0"),
]
PATHS = [
    *("", ".", "/dev/zero", "/dev/null", "{}", "{}/absent/x.tsv", "{}/set.npz", "{}/model.safetensors"),
    *("{}/" + "z" * 300, "{}/a.tsv", "{}/a.json", "{}/certified.tsv", "{}/recipe.toml", "a=b", "{}/\x1b[31m.tsv"),
]
HONEST = ("set.npz", "model.safetensors", "old.pth", "recipe.toml", "certified.tsv", "certified.counts.tsv")
HONEST += ("certified.json",)
KINDS = {"count": COUNTS, "size": SIZES, "number": NUMBERS, "name": NAMES, "path": PATHS, "flag": [None]}
VOTING = "data=path split=name resize=size crop=size corruption=name severity=count sigma=number n=count n0=count"
VOTING += " alpha=number seed=size skip=size max=size shard=name device=name precision=name form=name batch=size"
VOTING += " micro-batch=size out=path json=flag dry-run=flag normalization=name pretrained=name data-dir=path"
MODEL = ("{}/model.safetensors", "--data", "{}/set.npz", "--device", "cpu")
ATTACK = ("attack", *MODEL, "--certificates", "{}/certified.tsv")
COMMANDS = {
    ("certify", *MODEL, "--n", "20", "--n0", "5", "--alpha", "0.1", "--max", "1", "--out", "{}/out.tsv"): VOTING
    + " stop=name grid=number radius=number budget=number skip-wrong=flag noise=name sound=flag bound=name",
    (
        "certify",
        *MODEL,
        "--n",
        "99",
        "--stop",
        "radius",
        "--radius",
        "0.1",
        "--max",
        "1",
        "--out",
        "{}/out.tsv",
    ): VOTING,
    ("predict", *MODEL, "--n", "20", "--max", "1", "--out", "{}/out.tsv"): VOTING.replace("n0=count", ""),
    ("recertify", "{}/certified.tsv", "--out", "{}/again.tsv"): "json=flag unverified=flag alpha=number bound=name"
    " norm=name top-k=size classes=size dimensions=size out=path",
    (
        "attack",
        *MODEL,
        "--certificates",
        "{}/certified.tsv",
        "--n",
        "20",
        "--steps",
        "1",
        "--noises",
        "1",
        "--max",
        "1",
    ): "certificates=path radii=number steps=count noises=count n=count alpha=number out=path json=flag batch=size",
    ("reproduce", "mnist", "--runs", "{}/runs"): "only=name plan=flag precision=name n=count skip=size runs=path"
    " device=name time-limit=number together=size out=path",
    ("report", "{}/certified.tsv"): "out=path paper=flag json=flag linf=number sigma=number dataset=name"
    " baseline=name radii=number unverified=flag",
    ("merge", "{}/certified.tsv", "--out", "{}/joined.tsv"): "out=path",
    ("import", "{}/old.pth", "--out", "{}/new.safetensors"): "out=path normalization=name architecture=name"
    " dataset=name sigma=number method=name check=flag",
    ("export", "{}/model.safetensors", "--out", "{}/new.pth"): "out=path force=flag",
    ("list", "models"): "json=flag",
    ("data", "show", "{}/set.npz"): "split=name data-dir=path resize=size crop=size json=flag",
    ("data", "list", "--data-dir", "{}"): "data-dir=path json=flag",
    ("train", "{}/recipe.toml", "--runs", "{}/runs"): "recipe=path runs=path name=name dataset=path architecture=name"
    " method=name sigma=number seed=size epochs=count batch=size steps=name learning-rate=number schedule=name"
    " lr-step=size momentum=number augmentation=name precision=name teacher=path time-limit=number weight=number"
    " num-noises=count resize=size crop=size label-samples=count",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a tiny dataset and an untrained network, from which nothing large can begin."""
    folder = tmp_path_factory.mktemp("commands")
    np.savez(folder / "set.npz", x=np.zeros((2, 28, 28), np.uint8), y=np.array([0, 1]))
    smoothcert.save_checkpoint(folder / "model.safetensors", smoothcert.create_model("lenet"), sigma=0.5)
    smoothcert.export_checkpoint(smoothcert.load_checkpoint(folder / "model.safetensors"), folder / "old.pth")
    (folder / "recipe.toml").write_text(f'dataset = "{folder}/set.npz"\nepochs = 1\nbatch = 2\n')
    main(
        [
            "certify",
            *(part.format(folder) for part in MODEL),
            "--n",
            "20",
            "--alpha",
            "0.1",
            "--out",
            f"{folder}/certified.tsv",
        ]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SMOOTHCERT_DATA", str(folder))  # where no dataset is
        yield folder


@st.composite
def command_lines(draw):
    """Return a command that would work, with other values for one to three of its options."""
    command = draw(st.sampled_from(sorted(COMMANDS)))
    arguments = list(command)
    for option in draw(st.lists(st.sampled_from(COMMANDS[command].split()), min_size=1, max_size=3)):
        flag, kind = option.split("=")
        value = draw(st.sampled_from(KINDS[kind] if draw(st.integers(0, 9)) else NAMES + SIZES))
        arguments += [f"--{flag}"] if value is None else [f"--{flag}={value}"]
    if draw(st.integers(0, 5)) == 0:
        arguments[draw(st.integers(1, len(arguments) - 1))] = draw(st.sampled_from(PATHS + NAMES))
    return arguments


def check(arguments, folder):
    out, err = io.StringIO(), io.StringIO()
    given_arguments = [argument.replace("{}", str(folder)) for argument in arguments]
    before = os.getcwd()
    os.chdir(folder)
    try:
        with watched(folder, 4 << 20), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(given_arguments)
            except SystemExit as stop:  # argparse
                code = stop.code
    finally:
        os.chdir(before)
        for path in folder.iterdir():
            if path.name not in HONEST:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    said = err.getvalue()
    assert code in (0, 1, 2), said
    assert "Traceback" not in said
    if code:
        complaints = [line for line in said.splitlines() if line.startswith("smoothcert")]
        assert len(complaints) == 1, said
        assert len(complaints[0]) < 3000
    for text in (said, out.getvalue()):
        assert all(letter.isprintable() or letter == "\n" for letter in text), ascii(text)


def fuzz(folder, examples):
    options = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}

    @settings(max_examples=examples, phases=(Phase.generate, Phase.shrink), print_blob=False, **options)
    @given(command_lines())
    def run(arguments):
        check(arguments, folder)

    run()


def test_wrong_command_lines_give_one_line(folder):
    fuzz(folder, FEW)


@pytest.mark.slow
def test_many_wrong_command_lines_give_one_line(folder):
    fuzz(folder, MANY)
