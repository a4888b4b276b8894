"""What goes from a folder of runs into the project's results: finished runs of the recipes, and nothing else."""

import dataclasses
import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import smoothcert
from smoothcert.checkpoint import save_checkpoint
from smoothcert.data.corruptions import make_corrupted
from smoothcert.errors import UsageError
from smoothcert.reproduction import Workplace, list_jobs, reproduce

SCRIPT = Path(__file__).parent.parent / "scripts" / "results.py"


@pytest.fixture
def script(mini, tmp_path, monkeypatch):
    """The script, keeping in a folder of the test, with one run of a table and recipes that take a second."""
    spec = importlib.util.spec_from_file_location("keeping", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    data = tmp_path / "few.npz"
    images, labels = mini.images.numpy(), mini.labels.numpy()
    np.savez(data, x_train=images[::10], y_train=labels[::10], x_test=images[:4], y_test=labels[:4])
    small = {"epochs": 1, "batch": 64, "label_samples": 4, "dataset": str(data)}

    def few_jobs(table, only="gaussian-0.25"):
        corrupted = str(tmp_path / "few-c")
        return [dataclasses.replace(job, data=job.data and corrupted) for job in list_jobs(table, only, **small)]

    monkeypatch.setattr(module, "list_jobs", few_jobs)
    for name, path in (("ROOT", tmp_path), ("RESULTS", tmp_path / "results"), ("ZOO", tmp_path)):
        monkeypatch.setattr(module, name, path)
    return module


@pytest.fixture
def place(tmp_path):
    return Workplace(tmp_path / "runs", n=20)


def quiet(kind, name):
    return lambda progress: None


def test_a_finished_run_is_kept_without_what_else_lies_there(script, place):
    (job,) = script.list_jobs("mnist")
    reproduce([job], place, on_stage=quiet)
    reproduce([job], dataclasses.replace(place, n=30), on_stage=quiet)
    script.keep_table(place, "mnist")
    (path,) = script.certificates(script.RESULTS)
    assert path.relative_to(script.RESULTS).parts[:2] == ("mnist", "mnist-gaussian-0.25")
    assert script.read_results(path).about["settings"]["n"] == 20
    script.verify_all(script.RESULTS, images=0, n=0)


def test_a_run_of_two_tables_is_kept_once_and_shown_in_both(script, place, capsys):
    first, second, *_ = script.list_jobs("variance")
    reproduce([first, second], place, on_stage=quiet)
    script.keep_table(place, "mnist")
    assert script.kept_rows(script.RESULTS, "variance") == [], "one seed has no spread"
    script.keep_table(place, "variance")
    assert "mnist-gaussian-0.25: results/mnist/mnist-gaussian-0.25 is the same run" in capsys.readouterr().out
    homes = [(path.parts[-3], path.parts[-2]) for path in script.certificates(script.RESULTS)]
    assert homes == [("mnist", "mnist-gaussian-0.25"), ("variance", "mnist-gaussian-0.25-seed1")]
    rows = {table: script.kept_rows(script.RESULTS, table) for table in ("mnist", "variance")}
    assert [job.config.name for job, _ in rows["mnist"]] == ["mnist-gaussian-0.25"]
    assert [(job.config.seed, path.parts[-3]) for job, path in rows["variance"]] == [(0, "mnist"), (1, "variance")]


def test_another_run_of_a_kept_name_is_left_out(script, place, capsys):
    reproduce(script.list_jobs("mnist"), place, on_stage=quiet)
    script.keep_table(place, "mnist")
    script.keep_table(place, "mnist")
    assert "left out" not in capsys.readouterr().out, "a table's own run is kept anew"
    (path,) = script.certificates(script.RESULTS)
    sidecar = script.sidecar_path(path)
    network = script.file_hash(place.runs / "mnist-gaussian-0.25" / "model.safetensors")
    sidecar.write_text(sidecar.read_text().replace(network, "0" * 64))
    script.keep_table(place, "variance")
    assert "results/mnist/mnist-gaussian-0.25 is another run" in capsys.readouterr().out
    path.rename(path.with_name(path.name.replace("n20", "n20-skip5")))  # nor beside certificates of other images
    sidecar.rename(sidecar.with_name(sidecar.name.replace("n20", "n20-skip5")))
    script.keep_table(place, "variance")
    assert "results/mnist/mnist-gaussian-0.25 is another run" in capsys.readouterr().out
    assert not (script.RESULTS / "variance").exists()


def test_weights_of_catrs_are_kept_with_their_hash(script, place, monkeypatch):
    (job,) = script.list_jobs("mnist", "catrs-0.25")
    reproduce([job], place, on_stage=quiet)
    monkeypatch.setattr(script, "list_jobs", lambda table: [job])
    script.keep_table(place, "mnist")
    known = json.loads((script.ZOO / "checksums.json").read_text())
    network = place.runs / "mnist-catrs-0.25" / "model.safetensors"
    assert known == {"mnist-catrs-0.25": script.file_hash(network)}


def test_what_is_not_finished_is_left_out(script, place, capsys):
    (job,) = script.list_jobs("mnist")
    script.keep_table(place, "mnist")
    assert not capsys.readouterr().out, "a run that was not begun"
    reproduce([job], place, on_stage=quiet)
    (path,) = place.results_paths(job)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    script.keep_table(place, "mnist")
    assert "mnist-gaussian-0.25: it is not finished" in capsys.readouterr().out
    assert not script.RESULTS.exists()


def test_a_run_of_another_configuration_is_refused(script, place):
    (job,) = script.list_jobs("mnist")
    other = dataclasses.replace(job, config=dataclasses.replace(job.config, learning_rate=0.1))
    reproduce([other], place, on_stage=quiet)
    with pytest.raises(UsageError, match=r"another configuration \(learning_rate differ\)"):
        script.keep_table(place, "mnist")


def test_damaged_certificates_are_refused(script, place, capsys):
    (job,) = script.list_jobs("mnist")
    reproduce([job], place, on_stage=quiet)
    (path,) = place.results_paths(job)
    path.write_text(path.read_text().replace("\t0\t0:", "\t1\t0:"))  # all that are wrong, or abstain, are right
    with pytest.raises(AssertionError, match="a row is right by its label, or is not"):
        script.keep_table(place, "mnist")
    script.counts_path(path).unlink()
    script.keep_table(place, "mnist")
    assert "mnist-gaussian-0.25: it is not finished" in capsys.readouterr().out, "no votes, no certificates"
    assert not script.RESULTS.exists()


def test_precision_is_the_runs_own(script, place):
    (job,) = script.list_jobs("mnist")
    other = dataclasses.replace(job, config=dataclasses.replace(job.config, precision="tf32"))
    reproduce([other], place, on_stage=quiet)
    script.keep_table(place, "mnist")
    assert len(script.certificates(script.RESULTS)) == 1


@pytest.mark.slow
def test_certificates_on_corrupted_images_are_kept_apart(script, place, tmp_path):
    """A run with both kinds of certificates: each goes to its own table, and the page joins them again."""
    (clean,), (corrupted,) = script.list_jobs("mnist"), script.list_jobs("mnist-c")
    make_corrupted(smoothcert.load_dataset(clean.config.dataset, "test"), tmp_path / "few-c", workers=1)
    reproduce([clean, dataclasses.replace(corrupted, skip=10)], place, on_stage=quiet)
    for table in ("mnist", "mnist-c"):
        script.keep_table(place, table)
    kept = {table: script.certificates(script.RESULTS / table) for table in ("mnist", "mnist-c")}
    assert [len(files) for files in kept.values()] == [1, 15]
    script.verify_all(script.RESULTS, images=0, n=0)
    page = script.corruption_tables(script.RESULTS / "mnist-c")
    assert page.count("Gaussian") == 3
    assert "| few-c | sigma |" in page
    assert " fog |" in page
    (row,) = (line for line in page.splitlines() if line.startswith("| Gaussian |"))
    assert re.fullmatch(r"\| Gaussian \| (\w+ )?1 \| 0\.\d{3} \|.*", row)


def another_network(run):
    """Change the weights of a run, as training it again on another machine does, and drop what was made of them."""
    checkpoint = smoothcert.load_checkpoint(run)
    with torch.no_grad():
        next(checkpoint.model.parameters()).mul_(1.01)
    save_checkpoint(run / "model.safetensors", checkpoint.model, **checkpoint.about)
    for path in run.glob("certify-*"):
        path.unlink()


@pytest.mark.slow
def test_clean_images_of_a_network_that_was_trained_again(script, place, tmp_path):
    """They are kept beside the corrupted ones, and are no row of the clean table, which has the first network's."""
    (clean,), (corrupted,) = script.list_jobs("mnist"), script.list_jobs("mnist-c")
    make_corrupted(smoothcert.load_dataset(clean.config.dataset, "test"), tmp_path / "few-c", workers=1)
    reproduce([clean], place, on_stage=quiet)
    script.keep_table(place, "mnist")
    another_network(place.runs / clean.config.name)
    few = [dataclasses.replace(job, skip=10) for job in (clean, corrupted)]
    reproduce(few, place, on_stage=quiet)
    for _ in range(2):  # keeping again changes nothing
        script.keep_table(place, "mnist-c")
        assert len(script.certificates(script.RESULTS / "mnist-c")) == 16
    script.verify_all(script.RESULTS, images=0, n=0)
    page = script.corruption_tables(script.RESULTS / "mnist-c")
    (row,) = (line for line in page.splitlines() if line.startswith("| acc % | 0.25 | Gaussian |"))
    assert re.fullmatch(r"\d+\.\d", row.split(" | ")[-3])
    reproduce([clean], place, on_stage=quiet)  # now on all images, under the name of the first network's
    script.keep_table(place, "mnist-c")
    ((_, path),) = script.kept_rows(script.RESULTS, "mnist")
    assert path.parent.parent.name == "mnist"
    another_network(place.runs / clean.config.name)
    reproduce([corrupted], place, on_stage=quiet)
    script.keep_table(place, "mnist-c")
    kept = script.certificates(script.RESULTS / "mnist-c")
    assert (len(kept), {script.every(path) for path in kept}) == (15, {1}), "nothing of the network before it"


@pytest.mark.slow
def test_corrupted_images_are_of_the_packages_network(script, place, tmp_path, monkeypatch, capsys):
    """Its weights are not replaced under the certificates that another table has of them."""
    monkeypatch.setattr(script, "WITH_WEIGHTS", ("gaussian",))
    (clean,), (corrupted,) = script.list_jobs("mnist"), script.list_jobs("mnist-c")
    make_corrupted(smoothcert.load_dataset(clean.config.dataset, "test"), tmp_path / "few-c", workers=1)
    reproduce([clean], place, on_stage=quiet)
    script.keep_table(place, "mnist")
    before = (tmp_path / "mnist-gaussian-0.25.safetensors").read_bytes()
    another_network(place.runs / clean.config.name)
    reproduce([dataclasses.replace(corrupted, skip=10)], place, on_stage=quiet)
    script.keep_table(place, "mnist-c")
    assert "the package has another network of that name" in capsys.readouterr().out
    assert (tmp_path / "mnist-gaussian-0.25.safetensors").read_bytes() == before
    assert not (script.RESULTS / "mnist-c").exists()
