"""Several processes do what one does: train to its weights, certify to its rows, and survive a SIGKILL."""

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from launching import HANGS, SOURCE, environment, finish, kill_rank, smoothcert_group, torchrun
from own_networks import Mlp
from safetensors.torch import load_file
from training_child import configure

import smoothcert
from smoothcert.cli import main
from smoothcert.training.fit import fit
from smoothcert.training.run_folder import RunFolder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def weights_of_one_process(tmp_path_factory):
    path = tmp_path_factory.mktemp("one") / "weights.safetensors"
    subprocess.run([sys.executable, child("ranks_child.py"), str(path)], check=True, env=environment())
    return load_file(path)


def child(name):
    return str(SOURCE.parent / "tests" / "helpers" / name)


@pytest.mark.parametrize("count", [2, 4])
def test_every_method_trains_to_the_weights_of_one_process(count, weights_of_one_process, tmp_path):
    """Twenty steps each, in double precision; watched sums have parts in single precision."""
    code, output = finish(torchrun(count, child("ranks_child.py"), tmp_path / "w.safetensors"))
    assert code == 0, output
    found = load_file(tmp_path / "w.safetensors")
    assert found.keys() == weights_of_one_process.keys()
    for name, expected in weights_of_one_process.items():
        atol = 1e-6 if name.endswith("sums") else 1e-9
        torch.testing.assert_close(found[name], expected, rtol=0, atol=atol, msg=lambda text, name=name: name + text)


@pytest.mark.parametrize(
    ("case", "method", "batch"), [("Mlp", "consistency", 32), ("Mlp", "catrs", 30), ("RankedMlp", "gaussian", 32)]
)
def test_own_networks_train_to_the_weights_of_one_process(case, method, batch, tmp_path):
    """An MLP with BatchNorm1d and tied weights, trained by a script that calls `smoothcert.train`."""
    script = [child("own_networks.py"), case, method]
    one = subprocess.run([sys.executable, *script, str(tmp_path / "one"), str(batch)], env=environment())
    assert one.returncode == 0
    code, output = finish(torchrun(2, *script, tmp_path / "two", batch))
    assert code == 0, output
    ours, theirs = (load_file(tmp_path / name / "run" / "model.safetensors") for name in ("two", "one"))
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        torch.testing.assert_close(ours[name], expected, rtol=0, atol=1e-5, msg=lambda text, name=name: name + text)


def test_every_rank_loads_plugins(tmp_path):
    """A registered network and dataset, by the command line."""
    names = "from own_networks import Mlp, clouds"
    plugin, registered = (
        tmp_path / "own_plugin.py",
        ("register_model('mlp', Mlp)", "register_dataset('clouds', clouds)"),
    )
    plugin.write_text("\n".join(["import smoothcert", names, *(f"smoothcert.{call}" for call in registered)]))
    flags = ["-m", "smoothcert", "train", "--plugin", plugin, "--architecture", "mlp", "--dataset", "clouds"]
    flags += ["--epochs", 2, "--batch", 32, "--name", "run", "--runs", tmp_path]
    code, output = finish(torchrun(2, *flags))
    assert code == 0, output
    segment = RunFolder(tmp_path / "run").read_segments()[-1]
    assert segment["processes"] == 2
    assert smoothcert.load_checkpoint(tmp_path / "run", model=Mlp).model.architecture == "mlp"


def test_training_survives_the_death_of_a_rank(tmp_path):
    """torchrun starts the group again, and it goes on from the last checkpoint; nothing is lost or done twice."""
    flags = ["-m", "smoothcert", "train", "--dataset", "mnist-mini", "--epochs", 8, "--runs", tmp_path]
    broken, whole = (RunFolder(tmp_path / name) for name in ("broken", "whole"))
    process = torchrun(2, *flags, "--name", "broken", restarts=3)
    kill_rank(process, 1, when=lambda: len(broken.read_segments()) == 1)
    kill_rank(process, 0, when=lambda: len(broken.read_segments()) == 2)
    code, output = finish(process)
    assert code == 0, output
    assert [row["epoch"] for row in broken.read_metrics()] == list(range(8))
    assert len(broken.read_segments()) == 3
    assert {segment["processes"] for segment in broken.read_segments()} == {2}
    code, output = finish(torchrun(2, *flags, "--name", "whole"))
    assert code == 0, output
    ours, theirs = load_file(broken.model), load_file(whole.model)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert not list(tmp_path.glob(".shared-*"))


def test_ranks_choose_the_same_images_and_resume_in_every_phase(mini, tmp_path):
    """Votes of two ranks are those of one; a rank dies before and after images were discarded."""
    pixels, labels = mini.images[:200].numpy(), mini.labels[:200].numpy()
    np.savez(
        tmp_path / "tiny.npz",
        train_images=pixels[:180], train_labels=labels[:180], test_images=pixels[180:], test_labels=labels[180:],
    )  # fmt: skip
    sampling = {"epochs": 8, "sampling_epoch": 3, "discard_below": 0.2, "reweight_every": 2, "attack_epoch": 3}
    sampling |= {"method": "first-failure", "sampling": "replacement", "num_noises": 2, "attack_steps": 2}
    sampling |= {"dataset": tmp_path / "tiny.npz", "batch": 20, "discard_samples": 10, "runs": tmp_path}
    flags = ["-m", "smoothcert", "train"]
    flags += [part for name, value in sampling.items() for part in ("--" + name.replace("_", "-"), value)]
    broken, whole, alone = (RunFolder(tmp_path / name) for name in ("broken", "whole", "alone"))
    process = torchrun(2, *flags, "--name", "broken", restarts=3)
    kill_rank(process, 1, when=lambda: len(broken.read_metrics()) == 2)
    kill_rank(process, 0, when=lambda: len(broken.read_metrics()) == 5)
    code, output = finish(process)
    assert code == 0, output
    code, output = finish(torchrun(2, *flags, "--name", "whole"))
    assert code == 0, output
    assert main([str(part) for part in (*flags[2:], "--name", "alone")]) == 0
    ours, theirs = load_file(broken.model), load_file(whole.model)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    kept = [[row.get("kept_images") for row in run.read_metrics()] for run in (broken, whole, alone)]
    assert kept[0] == kept[1]
    assert kept[0][:3] == [None] * 3
    assert kept[0][3:] == kept[2][3:]
    assert 10 < kept[0][3] < 170


@pytest.mark.parametrize("ranks", [[0, 1], [1]])
def test_interrupted_training_saves_and_goes_on(ranks, tmp_path):
    """Ctrl-C reaches all processes, through their launcher; a signal to one of them ends the others just as well."""
    flags = ["train", "--dataset", "mnist-mini", "--epochs", 8, "--runs", tmp_path, "--name"]
    broken, whole = (RunFolder(tmp_path / name) for name in ("broken", "whole"))
    group = smoothcert_group(*[([*flags, "broken"], {})] * 2)
    while not broken.metrics.exists():
        assert group[0].poll() is None, finish(group[0])
        time.sleep(0.01)
    time.sleep(0.2)
    for rank in ranks:
        group[rank].send_signal(signal.SIGINT)
    codes, outputs = zip(*map(finish, group), strict=True)
    assert codes == (130, 130), outputs
    text = f"broken: interrupted after {broken.load_state()[1]:,} of"
    assert [text in output for output in outputs] == [True, False], "it is said once"
    for name in ("broken", "whole"):
        codes, outputs = zip(*map(finish, smoothcert_group(*[([*flags, name], {})] * 2)), strict=True)
        assert codes == (0, 0), outputs
    assert len(broken.read_segments()) == 2
    ours, theirs = load_file(broken.model), load_file(whole.model)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def rows(path):
    with path.open(newline="") as file:
        return [{**row, "time": ""} for row in csv.DictReader(file, delimiter="\t")]


@pytest.fixture
def certified(checkpoint, tmp_path):
    """A network, the command that certifies it, and the rows and counts of one process."""
    command = ["certify", str(checkpoint), "--N", "2000", "--skip", "25"]
    assert main([*command, "--out", str(tmp_path / "one.tsv")]) == 0
    return command, rows(tmp_path / "one.tsv"), (tmp_path / "one.counts.tsv").read_text()


def test_certification_survives_the_death_of_a_rank(certified, tmp_path):
    command, expected, counts = certified
    out = tmp_path / "two.tsv"
    process = torchrun(2, "-m", "smoothcert", *command, "--out", out, restarts=2)
    kill_rank(process, 1, when=lambda: out.exists() and len(rows(out)) > 3)
    code, output = finish(process)
    assert code == 0, output
    assert rows(out) == expected
    assert (tmp_path / "two.counts.tsv").read_text() == counts
    assert "images" in output


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_the_images_of_a_dead_or_frozen_rank_are_taken_over_without_a_restart(sent, certified, tmp_path):
    command, expected, counts = certified
    out = tmp_path / "two.tsv"
    group = smoothcert_group(*[([*command, "--out", out], {})] * 2, SMOOTHCERT_RANK_TIMEOUT=10)
    while not out.exists() or len(rows(out)) < 3:
        assert group[0].poll() is None, finish(group[0])
        time.sleep(0.05)
    group[1].send_signal(sent)
    try:
        code, output = finish(group[0])
    finally:
        group[1].kill()
    assert code == 0, output
    assert "Rank 1 has not responded for 10 seconds; other ranks take over its work." in output
    assert rows(out) == expected
    assert (tmp_path / "two.counts.tsv").read_text() == counts
    finish(group[1])


def test_sequential_certification_is_shared_out(checkpoint, tmp_path):
    """Looks and rows of two ranks are those of one, also when a rank dies in between and the command is given again."""
    command = ["certify", str(checkpoint), "--N", "3000", "--skip", "50", "--stop", "table"]
    one, two = tmp_path / "one.tsv", tmp_path / "two.tsv"
    assert main([*command, "--out", str(one)]) == 0
    process = torchrun(2, "-m", "smoothcert", *command, "--out", two)
    looks = tmp_path / "two.looks.tsv"
    kill_rank(process, 0, when=lambda: looks.exists() and looks.read_text().count("\n") > 5)
    assert finish(process)[0] != 0
    code, output = finish(torchrun(2, "-m", "smoothcert", *command, "--out", two))
    assert code == 0, output
    assert rows(two) == rows(one)
    assert rows(looks) == rows(tmp_path / "one.looks.tsv")
    assert (tmp_path / "two.counts.tsv").read_text() == (tmp_path / "one.counts.tsv").read_text()
    group = smoothcert_group(*[([*command[:-1], "budget", "--budget", "1e6", "--out", tmp_path / "b.tsv"], {})] * 2)
    codes, outputs = zip(*map(finish, group), strict=True)
    assert codes == (2, 2)
    assert sum("A budget cannot be shared by several processes" in output for output in outputs) == 1


def test_a_tables_runs_and_images_are_shared_out(tmp_path):
    """A child for each of two ranks makes a small table; one process alone has nothing left to do, and agrees."""
    process = torchrun(2, child("table_child.py"), tmp_path / "two")
    code, output = finish(process)
    assert code == 0, output
    subprocess.run([sys.executable, child("table_child.py"), str(tmp_path / "one")], check=True, env=environment())
    results = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("certify-*[0-9].tsv"))
    assert len(results) == 3
    for path in results:
        assert rows(tmp_path / "two" / path) == rows(tmp_path / "one" / path)
    for run in {path.parent for path in results}:
        segments = RunFolder(tmp_path / "two" / run).read_segments()
        assert [segment["processes"] for segment in segments] == [1], "each run was trained by one rank"


TRAIN = ["train", "--dataset", "mnist-mini", "--epochs", "50"]


def two_data_folders(folder, sample_data):
    """Two copies of a small ImageNet: b lacks a class, c an image, d a class of test images."""
    source = sample_data / "tiny-imagenet-sample"
    for name in "abcd":
        for split in ("train", "val"):
            for number, wnid in enumerate(sorted(path.name for path in (source / split).iterdir())[:3]):
                for image in sorted((source / split / wnid).iterdir())[: 3 + number]:
                    target = folder / name / "imagenet" / split / wnid / image.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.symlink_to(image)
    classes = sorted((folder / "b/imagenet/train").iterdir())
    for split in ("train", "val"):
        shutil.rmtree(folder / "b/imagenet" / split / classes[0].name)
    next((folder / "c/imagenet/train" / classes[1].name).iterdir()).unlink()
    shutil.rmtree(folder / "d/imagenet/val" / classes[2].name)
    return classes[2].name


def group_error(*commands):
    """Return what rank 0 says; every rank stops with an error, and the others are silent."""
    results = [finish(process) for process in smoothcert_group(*commands)]
    assert all(code in (1, 2) for code, _ in results), results
    assert all("smoothcert:" not in text for _, text in results[1:]), results
    assert results[0][1].count("smoothcert:") == 1, results
    return results[0][1]


def test_ranks_that_do_not_fit_together_say_so_and_stop(tmp_path, sample_data):
    runs = ["--runs", tmp_path / "runs"]
    error = group_error(([*TRAIN, *runs], {}), ([*TRAIN, *runs, "--seed", 3], {}))
    assert "The ranks do not agree on seed of run: 0 on rank 0, 3 on rank 1" in error
    error = group_error(([*TRAIN, *runs], {}), ([*TRAIN, "--runs", tmp_path / "elsewhere"], {}))
    assert "choose a folder that all nodes share" in error
    shutil.copytree(SOURCE / "smoothcert", tmp_path / "other/smoothcert")
    (tmp_path / "other/smoothcert/errors.py").open("a").write("# one line more\n")
    error = group_error(([*TRAIN, *runs], {}), ([*TRAIN, *runs], {"PYTHONPATH": str(tmp_path / "other")}))
    assert "do not agree on code version" in error
    assert "install the same smoothcert on every node" in error
    missing = two_data_folders(tmp_path, sample_data)
    imagenet = ["train", "imagenet-gaussian-1.00", *runs]
    error = group_error(*(([*imagenet, "--data-dir", tmp_path / name], {}) for name in "ab"))
    assert "do not agree on class folders" in error
    error = group_error(*(([*imagenet, "--data-dir", tmp_path / name], {}) for name in "ac"))
    assert "do not agree on images" in error
    error = group_error(*(([*imagenet, "--data-dir", tmp_path / name], {}) for name in "ad"))
    assert f"On rank 1: imagenet: the training images have a class {missing}, but the test images do not." in error


def test_compiled_steps_and_synchronized_batchnorm():
    """Compilation looks through the exchange of statistics."""
    process = torchrun(2, child("compiled_child.py"))
    code, output = finish(process)
    assert code == 0, output
    assert "the same" in output


def test_one_process_of_a_group_of_one_is_one_process(few, tmp_path, monkeypatch):
    whole = fit(configure("gaussian", epochs=1), tmp_path / "a", few, few)
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    again = fit(configure("gaussian", epochs=1), tmp_path / "b", few, few)
    assert all(torch.equal(a, b) for a, b in zip(load_file(whole).values(), load_file(again).values(), strict=True))
    assert smoothcert.load_checkpoint(again).about["method"] == "gaussian"


def run_script(path, *arguments, **variables):
    """Run a shell script of the examples, with this Python's torchrun."""
    here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {"PATH": here, **{key: str(value) for key, value in variables.items()}}
    done = subprocess.run(
        ["bash", str(path), *(str(argument) for argument in arguments)],
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=HANGS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_example_for_one_machine(tmp_path):
    output = run_script(SOURCE.parent / "examples/several_processes.sh", 2, tmp_path / "runs")
    assert "Consistency" in output
    assert RunFolder(tmp_path / "runs/several").finished


def test_the_example_for_slurm(tmp_path):
    """Its body, with the variables of a job and stand-ins for Slurm's two commands."""
    for name, body in (("srun", 'exec "$@"'), ("scontrol", "echo 127.0.0.1")):
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    job = {"SLURM_JOB_ID": os.getpid(), "SLURM_JOB_NUM_NODES": 1, "SLURM_JOB_NODELIST": "here"}
    few = {"SMOOTHCERT_RUNS": tmp_path / "runs", "SMOOTHCERT_PROCESSES": 2, "SMOOTHCERT_SKIP": 50, "SMOOTHCERT_N": 500}
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    script = SOURCE.parent / "examples/slurm/train.sbatch"
    output = run_script(script, "mnist-mini-gaussian-1.00", "--epochs", 1, **job, **few, PATH=path)
    assert "Gaussian" in output
    assert len(list((tmp_path / "runs/mnist-mini-gaussian-1.00").glob("certify-*-n500-skip50.tsv"))) == 1
