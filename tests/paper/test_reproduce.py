"""Reproducing a table in slices: nothing is done twice, and the remaining work is reported."""

import dataclasses
import json
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import smoothcert
from smoothcert.cli import main
from smoothcert.data.corruptions import make_corrupted
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.paper.jobs import Workplace, list_jobs
from smoothcert.paper.plan import plan
from smoothcert.paper.reproduce import read_corrupted_entries, read_entries, reproduce
from smoothcert.report.corrupted.means import summarize
from smoothcert.report.tables.formats import sheet
from smoothcert.report.tables.paper_numbers import paper_corruptions, paper_row
from smoothcert.report.tables.seed_means import seed_annex
from smoothcert.report.tables.table import build_table
from smoothcert.results.naming import counts_path
from smoothcert.runtime.deadline import Deadline, OutOfTimeError
from smoothcert.training.recipes import paper_tables
from smoothcert.training.run_folder import RunFolder
from smoothcert.training.teachers import teacher_config

WRONG = ("--n 5", "--together 0", "--out table.xyz", "--precision fp64")
SMALL = {"epochs": 1, "label_samples": 4, "batch": 64}


@pytest.fixture(scope="module")
def small(mini, tmp_path_factory):
    """Overrides that train a recipe in a second: 200 images, one epoch."""
    path = tmp_path_factory.mktemp("data") / "few.npz"
    images, labels = mini.images.numpy(), mini.labels.numpy()
    np.savez(path, x_train=images[::5], y_train=labels[::5], x_test=images[:40], y_test=labels[:40])
    return {**SMALL, "dataset": str(path)}


def quiet(kind, name):
    return lambda progress: None


class Watch:
    """Records the stages, and interrupts after a number of progress reports."""

    def __init__(self, stop=None):
        self.begun, self.stop, self.parts = [], stop, 0

    def begin(self, kind, name):
        self.begun.append((kind, name))
        return self.part

    def part(self, progress):
        self.parts += 1
        if self.parts == self.stop:
            raise KeyboardInterrupt


class StopIn:
    """Interrupts a training after its first epoch."""

    def __init__(self, name):
        self.name = name

    def begin(self, kind, name):
        def part(progress):
            if (kind, name) == ("train", self.name) and progress.metrics:
                raise KeyboardInterrupt

        return part


def small_jobs(small, table="mnist", only="gaussian-*"):
    return [dataclasses.replace(job, skip=5) for job in list_jobs(table, only, **small)]


def test_every_table_has_its_runs_and_the_papers_rows():
    for name, table in paper_tables().items():
        jobs = list_jobs(name)
        assert len(jobs) == len(table.rows) * len(table.seeds)
        assert len({job.config.name for job in jobs}) == len(jobs)
        if table.data:
            means = [paper_corruptions(table.data, job.config.method, "acr")["mean"] for job in jobs]
            assert all(0 < mean < 1 for mean in means)
            continue
        for job in jobs if name != "linf" else ():
            config = job.config
            dataset = smoothcert.load_recipe(config.name.split("-seed")[0]).dataset
            row = paper_row(dataset, config.sigma, config.method, table.paper, job.setup)
            assert (row is not None) == bool(table.paper), (name, config.name)
            if row is None:
                continue
            assert row.acr > 0
            assert (row.acr_std is not None) == (table.paper == "tab:variance")
            assert (row.hours is not None) == (name == "training-cost")


def test_the_papers_l_inf_numbers_stand_beside_the_main_rows():
    assert paper_row("cifar10", 0.25, "catrs").linf == {0.0: 76.3, 2 / 255: 61.4}
    assert paper_row("cifar10", 0.5, "catrs").linf == {}


def test_rows_are_chosen_by_glob():
    assert [job.config.name for job in list_jobs("mnist", "catrs-*")] == [
        "mnist-catrs-0.25",
        "mnist-catrs-0.50",
        "mnist-catrs-1.00",
    ]
    assert len(list_jobs("mnist", "mnist-*-0.25")) == 7
    assert len(list_jobs("variance", "catrs-*")) == 3 * 5, "all seeds of a row"
    seeds = [job.config.name for job in list_jobs("variance", "catrs-0.25-seed1", "mnist-catrs-0.50-seed[34]")]
    assert seeds == ["mnist-catrs-0.25-seed1", "mnist-catrs-0.50-seed3", "mnist-catrs-0.50-seed4"]
    assert len(list_jobs("mnist", "catrs-*", "mnist-*-0.25")) == 9, "in the table's order, none twice"
    assert {job.skip for job in list_jobs("mnist", skip=70)} == {70}
    with pytest.raises(UsageError, match="matches 'resnet'"):
        list_jobs("mnist", "catrs-*", "resnet")
    with pytest.raises(UsageError, match="No row of the table mnist matches 'resnet'"):
        list_jobs("mnist", "resnet")
    with pytest.raises(UsageError, match="did you mean 'fashion-mnist'"):
        list_jobs("fashon-mnist")


def test_a_table_in_slices_is_the_table_at_once(small, tmp_path):
    jobs = small_jobs(small)
    assert len(jobs) == 3
    reproduce(jobs, Workplace(tmp_path / "once", n=200), on_stage=quiet, together=2)
    slices = 0
    for stop in range(1, 40):
        watch = Watch(stop)
        try:
            reproduce(jobs, Workplace(tmp_path / "slices", n=200), on_stage=watch.begin, together=2)
            break
        except KeyboardInterrupt:
            slices += 1
    assert slices > 2
    names = [path.relative_to(tmp_path / "once") for path in (tmp_path / "once").glob("*/certify-*counts.tsv")]
    assert len(names) == 3
    for name in names:
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "slices" / name).read_bytes()
    watch, place = Watch(), Workplace(tmp_path / "slices", n=200)
    reproduce(jobs, place, on_stage=watch.begin)
    assert not watch.begun
    RunFolder(place.runs / jobs[0].config.name).model.unlink()
    assert [place.progress(job).finished for job in jobs] == [False, True, True], "certificates without a network"


@pytest.mark.slow
def test_a_table_of_corrupted_images(small, tmp_path, monkeypatch):
    """All corruptions of the test images, in slices, with the numbers of the clean images."""
    data = smoothcert.load_dataset(small["dataset"], "test")
    make_corrupted(data, tmp_path / "few-c", workers=1)
    (job,) = (dataclasses.replace(j, skip=5) for j in list_jobs("mnist-c", "gaussian-*", **small))
    job = dataclasses.replace(job, data=str(tmp_path / "few-c"))
    place = Workplace(tmp_path / "runs", n=200)
    with pytest.raises(KeyboardInterrupt):
        reproduce([job], place, on_stage=Watch(12).begin)
    assert 0 < place.progress(job).images < 15 * 8
    reproduce([job, dataclasses.replace(job, data="")], place, on_stage=quiet)
    assert place.progress(job).images == 15 * 8
    (tmp_path / "runs" / job.config.name / "certify-few-stop.looks.tsv").write_text("idx\tlook\n")  # not certificates
    (entry,) = read_corrupted_entries([job], place)
    assert (entry.method, entry.suite, entry.missing, len(entry.images)) == ("gaussian", "mnist-c", [], 8)
    summary = summarize(entry, "accuracy")
    assert summary.clean is not None
    assert len(summary.by_corruption) == 15
    other = Workplace(tmp_path / "runs", str(tmp_path), n=200)
    monkeypatch.delattr("smoothcert.paper.jobs.load_dataset")  # the clean images are not needed
    assert read_corrupted_entries([job], other)[0].clean is not None
    (tmp_path / "few-c" / "fog.npy").unlink()
    other = Workplace(tmp_path / "runs", tmp_path, n=200)
    with pytest.raises(SmoothcertError, match="few-c is incomplete: add fog"):
        other.progress(job)


def test_out_of_time_keeps_finished_work(small, tmp_path):
    jobs = small_jobs(small)
    with pytest.raises(OutOfTimeError):
        reproduce(jobs, Workplace(tmp_path, n=200), on_stage=quiet, time_limit=0.0)
    assert not any(Workplace(tmp_path, n=200).progress(job).finished for job in jobs)


def test_entries_know_their_row_in_the_paper(small, tmp_path):
    jobs = small_jobs(small, "tradeoff", "gaussian-1.00")
    reproduce(jobs, Workplace(tmp_path, n=200), on_stage=quiet)
    (entry,) = read_entries("tradeoff", jobs, Workplace(tmp_path, n=200))
    assert (entry.name, entry.paper) == ("Gaussian", ("tab:trends", "-"))


def test_seeds_are_summed_up(small, tmp_path):
    jobs = small_jobs(small, "variance", "gaussian-0.25")[:3]
    assert [job.config.seed for job in jobs] == [0, 1, 2]
    reproduce(jobs, Workplace(tmp_path, n=200), on_stage=quiet, together=3)
    table = build_table(read_entries("variance", jobs, Workplace(tmp_path, n=200)), paper=True)
    assert [line[1].text for line in sheet(table).groups[0]] == [f"Gaussian, seed {seed}" for seed in range(3)]
    annex = seed_annex(table.rows)
    (row,) = annex.values
    values, mean = [line.acr.value for line in table.rows], row["acr_mean"]
    assert row["seeds"] == 3
    assert mean == pytest.approx(sum(values) / 3)
    assert row["acr_deviation"] == pytest.approx((sum((value - mean) ** 2 for value in values) / 2) ** 0.5)
    assert [cell.text for cell in annex.sheet.lines[0][1:4]] == ["Gaussian", "3", f"{mean:.4f}"]
    named = [dataclasses.replace(line.entry, name=name) for line, name in zip(table.rows, "aba", strict=True)]
    alternating = [dataclasses.replace(line, entry=entry) for line, entry in zip(table.rows, named, strict=True)]
    assert [(found["name"], found["seeds"]) for found in seed_annex(alternating).values] == [("a", 2), ("b", 1)]


def test_a_run_that_fails_does_not_stop_the_others(small, tmp_path):
    jobs = small_jobs(small)
    jobs[1] = dataclasses.replace(jobs[1], config=dataclasses.replace(jobs[1].config, learning_rate=1e12))
    place = Workplace(tmp_path, n=200)
    with pytest.raises(SmoothcertError, match=r"mnist-gaussian-0\.50: the loss of gaussian diverged"):
        reproduce(jobs, place, on_stage=quiet, together=2)
    assert [place.progress(job).finished for job in jobs] == [True, False, True]

    def out_of_time(kind, name):
        if kind == "certify":
            raise OutOfTimeError("Time is up.")
        return quiet(kind, name)

    place.results_paths(jobs[2])[0].unlink()
    with pytest.raises(OutOfTimeError, match=r"the loss of gaussian diverged .* Time is up\."):
        reproduce(jobs, place, on_stage=out_of_time)


def test_a_run_that_cannot_begin_does_not_stop_those_beside_it(small, tmp_path):
    """One run of a group has a damaged state, another a teacher that another process is training."""
    jobs = small_jobs(small, only="*-0.25")
    jobs = [job for job in jobs if job.config.method in ("gaussian", "stability", "catrs")]
    place, first, third = Workplace(tmp_path, n=200), jobs[0], jobs[2]
    damaged, teacher = tmp_path / first.config.name / "state.safetensors", teacher_config(third.config).name
    RunFolder(damaged.parent).open(first.config)
    damaged.write_bytes(b"no tensors")
    errors = rf"{first.config.name}/state.safetensors cannot be read .*{teacher} is being trained by another process"
    with RunFolder(tmp_path / teacher).locked(), pytest.raises(SmoothcertError, match=errors):
        reproduce(jobs, place, on_stage=quiet, together=3)
    assert [place.progress(job).finished for job in jobs] == [False, True, False]
    damaged.unlink()
    reproduce(jobs, place, on_stage=quiet, together=3)
    assert all(place.progress(job).finished for job in jobs)


def test_results_with_other_settings_are_refused(small, tmp_path):
    (job,) = small_jobs(small, only="gaussian-0.25")
    place = Workplace(tmp_path, n=200)
    reproduce([job], place, on_stage=quiet)
    path = place.results_paths(job)[0]
    whole = path.read_text()
    path.write_text(whole[:-5])  # an incomplete last row does not count
    assert place.progress(job).images == place.progress(job).total - 1
    reproduce([job], place, on_stage=quiet)
    assert path.read_text().count("\n") == whole.count("\n")
    votes = path.with_suffix(".counts.tsv")
    votes.write_text("".join(votes.read_text().splitlines(keepends=True)[:3]))  # rows without votes do not count
    assert place.progress(job).images == 2
    reproduce([job], place, on_stage=quiet)
    assert votes.read_text().count("\n") == whole.count("\n")
    other = dataclasses.replace(job, config=dataclasses.replace(job.config, precision="bf16"))
    with pytest.raises(UsageError, match=r"different configuration \(different precision\)"):
        reproduce([other], place, on_stage=quiet)
    sidecar = path.with_suffix(".json")
    sidecar.write_text(sidecar.read_text().replace('"alpha": 0.001', '"alpha": 0.01'))
    with pytest.raises(UsageError, match="was made with a different alpha; move it elsewhere"):
        reproduce([job], place, on_stage=quiet)


def test_certificates_of_another_network_are_refused(small, tmp_path):
    """Its file is complete, so nothing else would open it again."""
    (job,) = small_jobs(small, only="gaussian-0.25")
    place = Workplace(tmp_path, n=200)
    reproduce([job], place, on_stage=quiet)
    network = tmp_path / job.config.name / "model.safetensors"
    checkpoint = smoothcert.load_checkpoint(network)
    smoothcert.save_checkpoint(network, checkpoint.model, **checkpoint.about, note="trained again")
    with pytest.raises(UsageError, match="was made with a different network; move it elsewhere"):
        reproduce([job], place, on_stage=quiet)
    place.results_paths(job)[0].unlink()
    assert place.progress(job).images == 0


def test_a_network_that_cannot_be_certified_does_not_stop_the_others(small, tmp_path):
    jobs, place = small_jobs(small)[:2], Workplace(tmp_path, n=200)
    reproduce(jobs, place, on_stage=quiet, together=2)
    damaged = tmp_path / jobs[0].config.name / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:1000])
    for job in jobs:
        place.results_paths(job)[0].unlink()
    with pytest.raises(SmoothcertError, match="mnist-gaussian-0.25/model.safetensors is damaged"):
        reproduce(jobs, place, on_stage=quiet)
    assert [place.progress(job).finished for job in jobs] == [False, True]


def test_a_plan_counts_the_remaining_work(small, tmp_path, monkeypatch):
    """With fixed times of the trials, the plan is exact."""
    monkeypatch.setattr("smoothcert.paper.plan.estimate_labels", lambda *_, **__: (100.0, 50.0))
    monkeypatch.setattr("smoothcert.paper.plan.estimate_steps", lambda config, *_: (8, 1.0 + len(config.options)))
    seconds = {"lenet": 0.5, "cifar_resnet110": 7.0}
    monkeypatch.setattr("smoothcert.paper.plan.estimate_certification", lambda c, *_: seconds[c.architecture])
    jobs, place = small_jobs({**small, "epochs": 2}, only="*-0.*"), Workplace(tmp_path, n=200)
    gaussian = [job for job in jobs if job.config.method == "gaussian"]
    catrs = [job for job in jobs if job.config.method == "catrs"]
    with pytest.raises(KeyboardInterrupt):  # four of its eight steps
        reproduce(gaussian[:1], place, on_stage=StopIn(gaussian[0].config.name).begin)
    reproduce(gaussian[1:2], place, on_stage=quiet)
    (results,) = place.results_paths(gaussian[1])
    for path, lost in ((results, 1), (counts_path(results), 3)):  # an image without votes is not done
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-lost]))
    another = dataclasses.replace(gaussian[1].config, name="another", architecture="cifar_resnet110")
    plain = dataclasses.replace(catrs[1].config, name="plain", options={})
    chosen = [*gaussian[:2], *catrs[:2]]
    chosen += [dataclasses.replace(catrs[1], config=config) for config in (another, plain)]
    lines = list(plan(chosen, place, torch.device("cpu"), lambda name: None))
    options = len(catrs[0].config.options)
    assert options > 0
    assert [(line.left, line.images, line.seconds) for line in lines] == [
        ("train, certify", 8, 4 * 1.0 + 8 * 0.5),
        ("certify", 3, 3 * 0.5),
        ("train, label", 200, 150.0),
        ("train, certify", 8, 8 * (1.0 + options) + 8 * 0.5),
        ("train, certify", 8, 8 * (1.0 + options) + 8 * 0.5),
        ("train, certify", 8, 8 * 1.0 + 8 * 7.0),
        ("train, certify", 8, 8 * 1.0 + 8 * 0.5),
    ]


@pytest.mark.slow
def test_plans_include_teachers_and_omit_finished_work(small, tmp_path):
    jobs, place = small_jobs({**small, "epochs": 2}, only="catrs-*")[:2], Workplace(tmp_path, n=200)
    timed = []

    def lines():
        return list(plan(jobs, place, torch.device("cpu"), timed.append))

    teacher = teacher_config(jobs[0].config).name
    before = lines()
    assert [(line.run, line.left, line.images) for line in before] == [
        (teacher, "train, label", len(smoothcert.load_dataset(small["dataset"], "train"))),
        ("mnist-catrs-0.25", "train, certify", 8),
        ("mnist-catrs-0.50", "train, certify", 8),
    ]
    assert all(line.seconds > 0 for line in before)
    assert timed == [teacher, "mnist-catrs-0.25"], "runs of the same settings take the same time"
    with pytest.raises(KeyboardInterrupt):
        reproduce(jobs, place, on_stage=StopIn("mnist-catrs-0.25").begin)
    _, first, second = [None, *lines()]
    assert first.seconds < second.seconds, "half of its steps are done"


def test_deadlines():
    assert Deadline(None).left is None
    assert not Deadline(100).reason
    with pytest.raises(OutOfTimeError):
        Deadline(0).check()
    seen = list[SimpleNamespace]()
    watch, part, whole = Deadline(0).watching(seen.append), *(SimpleNamespace(done=n, total=2) for n in (1, 2))
    with pytest.raises(OutOfTimeError):
        watch(part)
    watch(whole)  # nothing is left that could be stopped
    assert seen == [part, whole]


@pytest.mark.slow
def test_seeds_and_hours_are_in_every_output(small, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "smoothcert.paper.jobs.load_recipe", lambda name, /, **o: smoothcert.load_recipe(name, **o, **small)
    )
    for table, row in (("variance", "| 0.25 | Gaussian | 5 |"), ("training-cost", "| Gaussian, M=1 | 0.0")):
        out = tmp_path / f"{table}.md"
        arguments = ["reproduce", table, "--only", "gaussian-0.25", "--runs", str(tmp_path / table), "--n", "20"]
        assert main([*arguments, "--skip", "20", "--out", str(out)]) == 0
        assert row in out.read_text()
        capsys.readouterr()
        assert main([*arguments, "--skip", "20", "--json"]) == 0
        last = json.loads(capsys.readouterr().out)[-1]
        assert last["seeds"] == 5 if table == "variance" else last["hours"] > 0


@pytest.mark.slow
def test_the_command_line_explains_the_empty_column_of_clean_images(small, tmp_path, capsys, monkeypatch):
    data = str(shutil.copyfile(small["dataset"], tmp_path / "mnist.npz"))
    few = {**small, "dataset": data}
    monkeypatch.setattr(
        "smoothcert.paper.jobs.load_recipe", lambda name, /, **o: smoothcert.load_recipe(name, **o, **few)
    )
    make_corrupted(smoothcert.load_dataset(data, "test"), tmp_path / "data" / "mnist-c", workers=1)
    arguments = ["reproduce", "mnist-c", "--only", "gaussian-0.25", "--runs", str(tmp_path / "runs"), "--n", "20"]
    arguments += ["--skip", "20", "--data-dir", str(tmp_path / "data"), "--json"]
    assert main(arguments) == 0
    said = capsys.readouterr().err
    assert "certify mnist-gaussian-0.25 on mnist-c/fog: 2 of 2 images" in said
    (command,) = re.findall(r"Gaussian: the column `clean` is empty; run `smoothcert (.*)` to fill it\.", said)
    assert main(command.split()) == 0
    capsys.readouterr()
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)[0]["acr"]["clean"] is not None
    assert "`clean`" not in captured.err


def test_the_command_line_reports_the_remaining_work(small, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "smoothcert.paper.jobs.load_recipe", lambda name, /, **o: smoothcert.load_recipe(name, **o, **small)
    )
    arguments = ["reproduce", "mnist", "--only", "gaussian-0.25", "--runs", str(tmp_path), "--n", "20"]
    assert main([*arguments, "--time-limit", "0.01s"]) == 1
    assert (
        "Remaining: mnist-gaussian-0.25 (training, 40 images). Run the same command to resume."
        in capsys.readouterr().err
    )
    assert main([*arguments, "--time-limit", "0.01s", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == [], "valid JSON without results"
    assert main(arguments) == 0
    assert "Gaussian" in capsys.readouterr().out
    assert main([*arguments, "--plan"]) == 0
    assert "done" in capsys.readouterr().out
    assert main(["reproduce", *arguments[2:], "--plan", "--only", "gaussian-0.25", "mnist"]) == 0, "the table last"
    assert "done" in capsys.readouterr().out
    config = tmp_path / "mnist-gaussian-0.25" / "config.toml"  # for example a run from a GPU in another precision
    config.write_text(config.read_text().replace('"fp32"', '"tf32"'))
    assert main([*arguments, "--plan"]) == 0
    assert "done" in capsys.readouterr().out
    assert main([*arguments, "--plan", "--precision", "fp32"]) == 2
    assert "different configuration (different precision)" in capsys.readouterr().err
    for wrong in (["mnst"], *(["mnist", *more.split()] for more in WRONG)):
        assert main(["reproduce", *wrong]) == 2
    assert issubclass(OutOfTimeError, SmoothcertError)
