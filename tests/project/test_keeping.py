"""Copying runs into the project's results: finished runs of the recipes, and nothing else."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import smoothcert
from kept.corruptions import corruption_lines, read_networks
from kept.keeping import keep_runs
from kept.rounding import round_run
from kept.shelf import certificates, every, kept_rows
from kept.verifying import WrongResultError, verify_all
from smoothcert.checkpoints.checkpoint import save_checkpoint
from smoothcert.checkpoints.tensor_files import read_tensors
from smoothcert.data.corruptions import make_corrupted
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.paper.jobs import Workplace, list_jobs
from smoothcert.paper.reproduce import reproduce
from smoothcert.results.naming import counts_path, sidecar_path
from smoothcert.results.reader import read_results
from smoothcert.runtime.atomic_files import file_hash
from smoothcert.statistics.metrics import average_certified_radius
from smoothcert.training.runs import train_run

SCRIPT = Path(__file__).parents[2] / "scripts" / "results.py"


@dataclass
class Shelf:
    """A folder of kept results, with recipes that take a second."""

    root: Path
    recipe: dict

    @property
    def results(self):
        return self.root / "results"

    def jobs(self, table, only="gaussian-0.25"):
        corrupted = str(self.root / "few-c")
        return [replace(job, data=job.data and corrupted) for job in list_jobs(table, only, **self.recipe)]

    def keep(self, place, table, jobs=()):
        keep_runs(place, jobs or self.jobs(table), self.results / table, self.root)


@pytest.fixture
def shelf(mini, tmp_path):
    data = tmp_path / "few.npz"
    images, labels = mini.images.numpy(), mini.labels.numpy()
    np.savez(data, x_train=images[::10], y_train=labels[::10], x_test=images[:4], y_test=labels[:4])
    return Shelf(tmp_path, {"epochs": 1, "batch": 64, "label_samples": 4, "dataset": str(data)})


@pytest.fixture
def place(tmp_path):
    return Workplace(tmp_path / "runs", n=20)


def quiet(kind, name):
    return lambda progress: None


def test_a_finished_run_is_kept_without_what_else_lies_there(shelf, place):
    (job,) = shelf.jobs("mnist")
    reproduce([job], place, on_stage=quiet)
    reproduce([job], replace(place, n=30), on_stage=quiet)
    shelf.keep(place, "mnist")
    (path,) = certificates(shelf.results)
    assert path.relative_to(shelf.results).parts[:2] == ("mnist", "mnist-gaussian-0.25")
    assert read_results(path).about["settings"]["n"] == 20
    verify_all(shelf.results, images=0, n=0)


def test_a_run_of_two_tables_is_kept_once_and_shown_in_both(shelf, place, capsys):
    first, second, *_ = shelf.jobs("variance")
    reproduce([first, second], place, on_stage=quiet)
    shelf.keep(place, "mnist")
    assert kept_rows(shelf.results, "variance") == [], "one seed has no spread"
    shelf.keep(place, "variance")
    assert "mnist-gaussian-0.25: results/mnist/mnist-gaussian-0.25 is the same run" in capsys.readouterr().out
    homes = [(path.parts[-3], path.parts[-2]) for path in certificates(shelf.results)]
    assert homes == [("mnist", "mnist-gaussian-0.25"), ("variance", "mnist-gaussian-0.25-seed1")]
    rows = {table: kept_rows(shelf.results, table) for table in ("mnist", "variance")}
    assert [job.config.name for job, _ in rows["mnist"]] == ["mnist-gaussian-0.25"]
    assert [(job.config.seed, path.parts[-3]) for job, path in rows["variance"]] == [(0, "mnist"), (1, "variance")]


def test_another_run_of_a_kept_name_is_left_out(shelf, place, capsys):
    reproduce(shelf.jobs("mnist"), place, on_stage=quiet)
    shelf.keep(place, "mnist")
    shelf.keep(place, "mnist")
    assert "left out" not in capsys.readouterr().out, "a table's own run is kept anew"
    (path,) = certificates(shelf.results)
    sidecar = sidecar_path(path)
    network = file_hash(place.runs / "mnist-gaussian-0.25" / "model.safetensors")
    sidecar.write_text(sidecar.read_text().replace(network, "0" * 64))
    shelf.keep(place, "variance")
    assert "results/mnist/mnist-gaussian-0.25 is another run" in capsys.readouterr().out
    path.rename(path.with_name(path.name.replace("n20", "n20-skip5")))  # nor beside certificates of other images
    sidecar.rename(sidecar.with_name(sidecar.name.replace("n20", "n20-skip5")))
    shelf.keep(place, "variance")
    assert "results/mnist/mnist-gaussian-0.25 is another run" in capsys.readouterr().out
    assert not (shelf.results / "variance").exists()


def test_weights_of_catrs_are_kept_with_their_hash(shelf, place):
    (job,) = shelf.jobs("mnist", "catrs-0.25")
    reproduce([job], place, on_stage=quiet)
    shelf.keep(place, "mnist", [job])
    known = json.loads((shelf.root / "networks.json").read_text())
    network = place.runs / "mnist-catrs-0.25" / "model.safetensors"
    acr = round(average_certified_radius(read_results(place.results_paths(job)[0])), 4)
    assert known == {"mnist-catrs-0.25": {"sha256": file_hash(network), "acr": acr, "images": 4}}


def test_weights_are_rounded_before_they_are_certified(shelf, place):
    (job,) = shelf.jobs("mnist")
    folder = place.runs / job.config.name
    with pytest.raises(SmoothcertError, match="holds no finished run"):
        round_run(folder)
    train_run(job.config, place.runs)
    before, size = read_tensors(folder / "model.safetensors"), (folder / "model.safetensors").stat().st_size
    round_run(folder)
    after = read_tensors(folder / "model.safetensors")
    assert after[1] == before[1]
    assert {name: weight.dtype for name, weight in after[0].items() if "normalize" in name or "bias" in name} == {
        name: weight.dtype for name, weight in before[0].items() if "normalize" in name or "bias" in name
    }
    assert (folder / "model.safetensors").stat().st_size < 0.6 * size
    loaded = smoothcert.load_checkpoint(folder).model.state_dict()
    for name, weight in before[0].items():
        expected = weight.bfloat16().float() if weight.dim() > 1 else weight
        assert torch.equal(loaded[name], expected), name
    reproduce([job], place, on_stage=quiet)
    (path,) = place.results_paths(job)
    assert read_results(path).about["settings"]["model"]["sha256"] == file_hash(folder / "model.safetensors")
    with pytest.raises(SmoothcertError, match="round networks before certifying them"):
        round_run(folder)


def test_a_damaged_run_leaves_the_package_whole(shelf, place, monkeypatch):
    """The list has the networks that were kept before."""
    monkeypatch.setattr("kept.keeping.WITH_WEIGHTS", ("gaussian",))
    jobs = shelf.jobs("variance")[:2]
    reproduce(jobs, place, on_stage=quiet)
    (path,) = place.results_paths(jobs[1])
    path.write_text(path.read_text().replace("\t0\t0:", "\t1\t0:"))
    with pytest.raises(WrongResultError, match="seed1.*: column `correct` contradicts the label"):
        shelf.keep(place, "variance", jobs)
    network = place.runs / "mnist-gaussian-0.25" / "model.safetensors"
    known = json.loads((shelf.root / "networks.json").read_text())
    assert {name: entry["sha256"] for name, entry in known.items()} == {"mnist-gaussian-0.25": file_hash(network)}


def test_what_is_not_finished_is_left_out(shelf, place, capsys):
    (job,) = shelf.jobs("mnist")
    shelf.keep(place, "mnist")
    assert not capsys.readouterr().out, "a run that was not begun"
    reproduce([job], place, on_stage=quiet)
    (path,) = place.results_paths(job)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    shelf.keep(place, "mnist")
    assert "mnist-gaussian-0.25: it is not finished" in capsys.readouterr().out
    assert not shelf.results.exists()


def test_shards_that_were_joined_are_kept(shelf, place):
    (job,) = shelf.jobs("mnist")
    reproduce([job], place, on_stage=quiet)
    (path,) = place.results_paths(job)
    about = json.loads(sidecar_path(path).read_text())
    assert about["settings"]["images"] == "0:4:1"
    about["settings"]["images"] = ["0:4:2", "1:4:2"]
    sidecar_path(path).write_text(json.dumps(about))
    shelf.keep(place, "mnist")
    assert len(certificates(shelf.results)) == 1


def test_the_command_says_what_is_wrong(tmp_path):
    def run(*arguments):
        return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, cwd=tmp_path)

    assert "keep RUNS TABLE" in run("--help").stdout
    done = run("keep", tmp_path, "mnyst")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Unknown table 'mnyst'; did you mean 'mnist'?")
    assert "Expected `runs` to be a folder, but got" in run("keep", tmp_path / "none", "mnist").stderr
    done = run("verify", "--images", "-1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Expected `--images` to be at least 0, but got -1.\n"


def test_a_run_of_another_configuration_is_refused(shelf, place):
    (job,) = shelf.jobs("mnist")
    other = replace(job, config=replace(job.config, learning_rate=0.1))
    reproduce([other], place, on_stage=quiet)
    with pytest.raises(UsageError, match=r"different configuration \(different learning_rate\)"):
        shelf.keep(place, "mnist")


def test_damaged_certificates_are_refused(shelf, place, capsys):
    (job,) = shelf.jobs("mnist")
    reproduce([job], place, on_stage=quiet)
    (path,) = place.results_paths(job)
    path.write_text(path.read_text().replace("\t0\t0:", "\t1\t0:"))  # wrong rows and abstentions become correct
    with pytest.raises(WrongResultError, match="column `correct` contradicts the label"):
        shelf.keep(place, "mnist")
    counts_path(path).unlink()
    shelf.keep(place, "mnist")
    assert "mnist-gaussian-0.25: it is not finished" in capsys.readouterr().out, "no votes, no certificates"
    assert not shelf.results.exists()


def test_precision_is_the_runs_own(shelf, place):
    (job,) = shelf.jobs("mnist")
    other = replace(job, config=replace(job.config, precision="tf32"))
    reproduce([other], place, on_stage=quiet)
    shelf.keep(place, "mnist")
    assert len(certificates(shelf.results)) == 1


@pytest.mark.slow
def test_certificates_on_corrupted_images_are_kept_apart(shelf, place, tmp_path):
    """Clean and corrupted certificates of one run go to different tables; the page shows them together."""
    (clean,), (corrupted,) = shelf.jobs("mnist"), shelf.jobs("mnist-c")
    make_corrupted(smoothcert.load_dataset(clean.config.dataset, "test"), tmp_path / "few-c", workers=1)
    reproduce([clean, replace(corrupted, skip=10)], place, on_stage=quiet)
    for table in ("mnist", "mnist-c"):
        shelf.keep(place, table)
    kept = {table: certificates(shelf.results / table) for table in ("mnist", "mnist-c")}
    assert [len(files) for files in kept.values()] == [1, 15]
    verify_all(shelf.results, images=0, n=0)
    page = "\n".join(corruption_lines(read_networks(shelf.results / "mnist-c")))
    assert page.count("| 0.25 | Gaussian |") == 2, "ACR and accuracy"
    assert "| few-c | sigma |" in page
    assert " fog |" in page
    first, second = (line for line in page.splitlines() if line.startswith("| Gaussian |"))
    assert re.fullmatch(r"\| Gaussian \| 0\.\d{3} \|.*", first)
    assert re.fullmatch(r"\| Gaussian \| (\w+ )?1 \| 0\.\d{3} \|.*", second)


def another_network(run):
    """Change the weights of a run, as another training would, and remove its certificates."""
    checkpoint = smoothcert.load_checkpoint(run)
    with torch.no_grad():
        next(checkpoint.model.parameters()).mul_(1.01)
    save_checkpoint(run / "model.safetensors", checkpoint.model, **checkpoint.about)
    for path in run.glob("certify-*"):
        path.unlink()


@pytest.mark.slow
def test_clean_images_of_a_network_that_was_trained_again(shelf, place, tmp_path):
    """They are kept beside the corrupted ones; the clean table keeps the first network's row."""
    (clean,), (corrupted,) = shelf.jobs("mnist"), shelf.jobs("mnist-c")
    make_corrupted(smoothcert.load_dataset(clean.config.dataset, "test"), tmp_path / "few-c", workers=1)
    reproduce([clean], place, on_stage=quiet)
    shelf.keep(place, "mnist")
    another_network(place.runs / clean.config.name)
    few = [replace(job, skip=10) for job in (clean, corrupted)]
    reproduce(few, place, on_stage=quiet)
    for _ in range(2):  # keeping again changes nothing
        shelf.keep(place, "mnist-c")
        assert len(certificates(shelf.results / "mnist-c")) == 16
    verify_all(shelf.results, images=0, n=0)
    page = "\n".join(corruption_lines(read_networks(shelf.results / "mnist-c")))
    (row,) = (line for line in page.splitlines() if line.startswith("| acc % | 0.25 | Gaussian |"))
    assert re.fullmatch(r"\d+\.\d", row.split(" | ")[-3])
    reproduce([clean], place, on_stage=quiet)  # now on all images, under the name of the first network's
    shelf.keep(place, "mnist-c")
    ((_, path),) = kept_rows(shelf.results, "mnist")
    assert path.parent.parent.name == "mnist"
    another_network(place.runs / clean.config.name)
    reproduce([corrupted], place, on_stage=quiet)
    shelf.keep(place, "mnist-c")
    kept = certificates(shelf.results / "mnist-c")
    assert (len(kept), {every(path) for path in kept}) == (15, {1}), "nothing of the network before it"


@pytest.mark.slow
def test_corrupted_images_are_of_the_packages_network(shelf, place, tmp_path, monkeypatch, capsys):
    """Bundled weights are not replaced while another table has certificates of them."""
    monkeypatch.setattr("kept.keeping.WITH_WEIGHTS", ("gaussian",))
    (clean,), (corrupted,) = shelf.jobs("mnist"), shelf.jobs("mnist-c")
    make_corrupted(smoothcert.load_dataset(clean.config.dataset, "test"), tmp_path / "few-c", workers=1)
    reproduce([clean], place, on_stage=quiet)
    shelf.keep(place, "mnist")
    before = (tmp_path / "mnist-gaussian-0.25.safetensors").read_bytes()
    another_network(place.runs / clean.config.name)
    reproduce([replace(corrupted, skip=10)], place, on_stage=quiet)
    shelf.keep(place, "mnist-c")
    assert "the package has another network of that name" in capsys.readouterr().out
    assert (tmp_path / "mnist-gaussian-0.25.safetensors").read_bytes() == before
    assert not (shelf.results / "mnist-c").exists()
