"""A table from nothing, in slices: nothing is done twice, and what is left is said."""

import dataclasses

import numpy as np
import pytest

import smoothcert
from smoothcert.cli import main
from smoothcert.deadline import Deadline, OutOfTimeError
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.recipes import paper_tables
from smoothcert.report.paper import paper_row
from smoothcert.report.seeds import over_seeds, to_seed_text
from smoothcert.report.table import build_table
from smoothcert.reproduction import list_jobs, progress_of, read_entries, reproduce

SMALL = {"epochs": 1, "label_samples": 4, "batch": 64}


@pytest.fixture(scope="module")
def small(mini, tmp_path_factory):
    """What makes a recipe a matter of a second: 200 images, and a short training."""
    path = tmp_path_factory.mktemp("data") / "few.npz"
    images, labels = mini.images.numpy(), mini.labels.numpy()
    np.savez(path, x_train=images[::5], y_train=labels[::5], x_test=images[:40], y_test=labels[:40])
    return {**SMALL, "dataset": str(path)}


def quiet(kind, name):
    return lambda progress: None


class Watch:
    """Records what is done, and stops after some parts of it."""

    def __init__(self, stop=None):
        self.begun, self.stop, self.parts = [], stop, 0

    def begin(self, kind, name):
        self.begun.append((kind, name))
        return self.part

    def part(self, progress):
        self.parts += 1
        if self.parts == self.stop:
            raise KeyboardInterrupt


def small_jobs(small, table="mnist", only="gaussian-*"):
    return [dataclasses.replace(job, skip=5) for job in list_jobs(table, only, **small)]


def test_every_table_has_its_runs_and_the_papers_rows():
    for name, table in paper_tables().items():
        if name in ("cifar10-c", "mnist-c"):
            continue
        jobs = list_jobs(name)
        assert len(jobs) == len(table.rows) * len(table.seeds)
        assert len({job.config.name for job in jobs}) == len(jobs)
        for job in jobs if name != "linf" else ():
            config = job.config
            dataset = smoothcert.load_recipe(config.name.split("-seed")[0]).dataset
            row = paper_row(dataset, config.sigma, config.method, table.paper, job.setup)
            assert row is not None, (name, config.name)
            assert row.acr > 0
            assert (row.acr_std is not None) == name.startswith("variance")
            assert (row.hours is not None) == (name == "training-cost")


def test_rows_are_chosen_by_glob():
    assert [job.config.name for job in list_jobs("mnist", "catrs-*")] == [
        "mnist-catrs-0.25",
        "mnist-catrs-0.50",
        "mnist-catrs-1.00",
    ]
    assert len(list_jobs("mnist", "mnist-*-0.25")) == 7
    with pytest.raises(UsageError, match="No row of the table mnist matches 'resnet'"):
        list_jobs("mnist", "resnet")
    with pytest.raises(UsageError, match="did you mean 'fashion-mnist'"):
        list_jobs("fashon-mnist")


def test_a_table_in_slices_is_the_table_at_once(small, tmp_path):
    jobs = small_jobs(small)
    assert len(jobs) == 3
    reproduce(jobs, tmp_path / "once", n=200, on_stage=quiet, together=2)
    slices = 0
    for stop in range(1, 40):
        watch = Watch(stop)
        try:
            reproduce(jobs, tmp_path / "slices", n=200, on_stage=watch.begin, together=2)
            break
        except KeyboardInterrupt:
            slices += 1
    assert slices > 2
    names = [path.relative_to(tmp_path / "once") for path in (tmp_path / "once").glob("*/certify-*counts.tsv")]
    assert len(names) == 3
    for name in names:
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "slices" / name).read_bytes()
    watch = Watch()
    reproduce(jobs, tmp_path / "slices", n=200, on_stage=watch.begin)
    assert not watch.begun


def test_out_of_time_keeps_what_is_there(small, tmp_path):
    jobs = small_jobs(small)
    with pytest.raises(OutOfTimeError):
        reproduce(jobs, tmp_path, n=200, on_stage=quiet, time_limit=0.0)
    assert not any(item.finished for item in progress_of(jobs, tmp_path, None, 200))


def test_entries_know_their_row_in_the_paper(small, tmp_path):
    jobs = small_jobs(small, "tradeoff", "gaussian-1.00")
    reproduce(jobs, tmp_path, n=200, on_stage=quiet)
    (entry,) = read_entries("tradeoff", jobs, tmp_path, None, 200)
    assert (entry.name, entry.paper) == ("Gaussian", ("tab:trends", "-"))


def test_seeds_are_summed_up(small, tmp_path):
    jobs = small_jobs(small, "variance", "gaussian-0.25")[:3]
    assert [job.config.seed for job in jobs] == [0, 1, 2]
    reproduce(jobs, tmp_path, n=200, on_stage=quiet, together=3)
    table = build_table(read_entries("variance", jobs, tmp_path, None, 200))
    (row,) = over_seeds(table.rows)
    values = [line.acr.value for line in table.rows]
    assert row.seeds == 3
    assert row.mean == pytest.approx(sum(values) / 3)
    assert row.deviation == pytest.approx((sum((value - row.mean) ** 2 for value in values) / 2) ** 0.5)
    assert "Gaussian" in to_seed_text([row])


def test_deadlines():
    assert Deadline(None).left is None
    assert not Deadline(100).passed
    with pytest.raises(OutOfTimeError):
        Deadline(0).check()


def test_the_command_line_says_what_is_left(small, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "smoothcert.reproduction.load_recipe", lambda name, /, **o: smoothcert.load_recipe(name, **o, **small)
    )
    arguments = ["reproduce", "mnist", "--only", "gaussian-0.25", "--runs", str(tmp_path), "--n", "20"]
    assert main([*arguments, "--time-limit", "0.01s"]) == 1
    assert "Left: mnist-gaussian-0.25 (training, 40 images). The same command goes on." in capsys.readouterr().err
    assert main(arguments) == 0
    assert "Gaussian" in capsys.readouterr().out
    assert main([*arguments, "--plan"]) == 0
    assert "done" in capsys.readouterr().out
    assert main(["reproduce", "mnst"]) == 2
    assert issubclass(OutOfTimeError, SmoothcertError)
