"""Sequential certification of data sets: the same rows for any batch, shard and interruption, in every mode."""

import dataclasses
import json
import random
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from scipy import stats

import smoothcert
from smoothcert.certification import sequential
from smoothcert.certification.dataset import certify_sequentially
from smoothcert.certification.scheduler import Tracker
from smoothcert.errors import UsageError
from smoothcert.results.look_store import read_looks
from smoothcert.results.merge import merge_results
from smoothcert.results.naming import counts_path, looks_path, sidecar_path
from smoothcert.statistics.noise import GaussianNoise
from smoothcert.statistics.stopping import BudgetStop, RadiusStop, TableStop

SIGMA = 0.4
INDICES = list(range(0, 480, 20))
RADII = (0.0, 0.25, 0.5, 0.75)
OPTIONS = {"n0": 20, "n": 600}
RULES = {
    "table": TableStop(radii=RADII),
    "table, wrong skipped": TableStop(skip_wrong=True, radii=RADII),
    "radius": RadiusStop(radius=0.5),
    "budget": BudgetStop(radii=RADII, samples=9000, images=len(INDICES)),
}


@pytest.fixture(scope="module")
def classifier(tiny_model):
    return smoothcert.SmoothedClassifier(tiny_model, SIGMA, 10, micro_batch=64)


def rows(path):
    """Rows, counts and looks, without their times."""
    lines = [file.read_bytes().splitlines() for file in (path, looks_path(path))]
    return [[line.rsplit(b"\t", 1)[0] for line in part] for part in lines], counts_path(path).read_bytes()


def certify(classifier, data, path, rule, indices=INDICES, **changes):
    return certify_sequentially(classifier, data, path, rule=rule, indices=indices, **{**OPTIONS, **changes})


@pytest.fixture(scope="module")
def reference(classifier, tiny, tmp_path_factory):
    """Every rule's files, made once."""
    folder, made = tmp_path_factory.mktemp("reference"), {}

    def of(name):
        if name not in made:
            made[name] = folder / f"{len(made)}.tsv"
            certify(classifier, tiny, made[name], RULES[name])
        return made[name]

    return of


@pytest.mark.parametrize("name", RULES)
def test_rows_do_not_depend_on_batch_or_capacity(classifier, tiny, tmp_path, reference, name, monkeypatch):
    from smoothcert.certification import sequential

    monkeypatch.setattr(sequential, "samples_at_once", lambda device: 3000)
    certify(classifier, tiny, tmp_path / "a.tsv", RULES[name], batch=200)
    assert rows(tmp_path / "a.tsv") == rows(reference(name))


@pytest.mark.parametrize("name", RULES)
def test_an_interruption_at_any_byte_is_healed(classifier, tiny, tmp_path, reference, name):
    """Stop in the middle, then cut the looks anywhere, as a kill would leave them, and go on."""
    path, generator = tmp_path / "a.tsv", random.Random(1)

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certify(classifier, tiny, path, RULES[name], on_progress=stop)
    assert 0 < len(smoothcert.read_results(path)) <= len(INDICES), "what there is can be read"
    content = looks_path(path).read_bytes()
    looks_path(path).write_bytes(content[: generator.randrange(len(content) // 2, len(content))])
    certify(classifier, tiny, path, RULES[name])
    assert rows(path) == rows(reference(name))
    drawn = json.loads(sidecar_path(path).read_text())["samples"]
    assert drawn == json.loads(sidecar_path(reference(name)).read_text())["samples"]


@pytest.mark.parametrize("name", RULES)
def test_shards_join_to_the_same_rows(classifier, tiny, tmp_path, reference, name):
    files = []
    for part in (1, 2, 3):
        rule = RULES[name]
        rule = dataclasses.replace(rule, shard=(part, 3)) if name == "budget" else rule
        files.append(tmp_path / f"{part}.tsv")
        certify(classifier, tiny, files[-1], rule, INDICES[part - 1 :: 3])
    assert merge_results(files, tmp_path / "all.tsv") == len(INDICES)
    assert rows(tmp_path / "all.tsv") == rows(reference(name))


def test_a_finished_file_draws_nothing_more(classifier, tiny, reference, monkeypatch):
    def never(*inputs):
        raise AssertionError("the network was called")

    path = reference("table")
    before = rows(path), sidecar_path(path).read_bytes()
    monkeypatch.setattr("smoothcert.smoothing.base_classifier.BaseClassifier.scores", never)
    records = certify(classifier, tiny, path, RULES["table"])
    assert len(records) == len(INDICES)
    assert (rows(path), sidecar_path(path).read_bytes()) == before


def test_a_kill_before_the_first_look_is_healed(classifier, tiny, tmp_path, reference):
    path = tmp_path / "a.tsv"
    certify(classifier, tiny, path, RULES["table"])
    for left in ("", "idx\tlo", "idx\tlook\tsamples\tvotes\ttime\n"):
        path.unlink()
        counts_path(path).unlink()
        looks_path(path).write_text(left)
        certify(classifier, tiny, path, RULES["table"])
        assert rows(path) == rows(reference("table"))


@pytest.mark.parametrize("name", RULES)
def test_anyone_can_recompute_the_bound(reference, name):
    """With scipy and the two text files alone."""
    path = reference(name)
    settings = json.loads(sidecar_path(path).read_text())["settings"]
    stop, best, chosen = settings["stop"], {}, {}
    for line in looks_path(path).read_text().splitlines()[1:]:
        idx, look, samples, votes, _ = line.split("\t")
        counts = {int(c): int(v) for c, v in (pair.split(":") for pair in votes.split())}
        if look == "0":
            chosen[idx] = min(counts, key=lambda c, counts=counts: (-counts[c], c))
            best[idx] = 0.0
        elif stop["confidence"] == "union":
            n, k = stop["looks"][int(look) - 1], counts.get(chosen[idx], 0)
            assert n == int(samples)
            bound = stats.beta.ppf(stop["alphas"][int(look) - 1], k, n - k + 1) if k else 0.0
            best[idx] = max(best[idx], bound)
    results = smoothcert.read_results(path)
    if stop["confidence"] == "union":
        p = np.array([best[str(idx)] for idx in results.idx])
        expected = np.where(p >= 0.5, settings["sigma"] * stats.norm.ppf(np.maximum(p, 0.5)), 0.0)
        assert results.radius == pytest.approx(expected, abs=1e-9)
        assert ((results.predict >= 0) == (p >= 0.5)).all()


def test_images_get_the_samples_they_need(tiny, reference):
    """The table stops early on clear images; with wrong ones skipped, those have their selection alone."""
    taken = {idx: int(looks[-1].votes.sum()) for idx, looks in read_looks(reference("table"), 10).items()}
    assert len(set(taken.values())) > 1
    skipped = read_looks(reference("table, wrong skipped"), 10)
    wrong = [idx for idx, looks in skipped.items() if looks[0].votes.argmax() != tiny.labels[idx]]
    assert wrong
    assert all(len(skipped[idx]) == 1 for idx in wrong)
    for idx in skipped.keys() - set(wrong):
        assert int(skipped[idx][-1].votes.sum()) == taken[idx]
    about = json.loads(sidecar_path(reference("table, wrong skipped")).read_text())
    assert about["settings"]["stop"]["skip_wrong"] is True


def test_the_fixed_table_is_reproduced(classifier, tiny, reference):
    """Every image is certified at the same radii as with all n samples, but for those at the very edge."""
    fixed = smoothcert.certify_dataset(classifier, tiny, indices=INDICES, **OPTIONS)
    ours = smoothcert.read_results(reference("table"))
    for record, predict, radius in zip(fixed, ours.predict, ours.radius, strict=True):
        for at in RADII:
            if (record.predict >= 0 and record.radius >= at) != (predict >= 0 and radius >= at):
                assert abs(record.radius - at) < 0.03


@pytest.mark.parametrize("samples", [100, 2000, 5000, 10**6])
def test_a_budget_is_never_exceeded_and_buys_what_it_can(classifier, tiny, tmp_path, samples):
    rule = BudgetStop(radii=RADII, samples=samples, images=len(INDICES))
    records = certify(classifier, tiny, tmp_path / "a.tsv", rule)
    drawn = json.loads(sidecar_path(tmp_path / "a.tsv").read_text())["samples"]
    assert drawn <= samples
    assert len(records) == len(INDICES)
    assert len(smoothcert.read_results(tmp_path / "a.tsv")) == len(INDICES)
    if samples == 10**6:
        assert drawn < len(INDICES) * 620, "it ends when all is decided"
    if samples == 100:
        assert all(record.predict == -1 for record in records)


def test_a_budget_has_a_table_from_the_first_votes_on(classifier, tiny, tmp_path, monkeypatch):
    """A kill that nothing can catch leaves rows of all images, though no half minute has passed."""
    path, seen = tmp_path / "a.tsv", list[int]()
    read = sequential._SequentialRun._read

    def spy(run, places):
        seen.append(len(smoothcert.read_results(path)) if path.exists() else 0)
        return read(run, places)

    monkeypatch.setattr(sequential._SequentialRun, "_read", spy)
    certify(classifier, tiny, path, RULES["budget"])
    assert seen[0] == 0
    assert set(seen[2:]) == {len(INDICES)}


def test_the_widest_undecided_come_first():
    rule = BudgetStop(radii=RADII, samples=10**6, images=24)
    tracker = Tracker(rule.plan(1000, 0.001), rule, GaussianNoise(0.5), [0] * 3, 20)
    tracker.observe([0, 1, 2], [np.array([20, 0])] * 3)
    tracker.observe([0, 1], [np.array([195, 5]), np.array([110, 90])])
    worth = tracker.worth(np.arange(3))
    assert worth[2] == np.inf
    assert worth[0] > worth[1]


def test_wrong_settings_and_foreign_files_are_refused(classifier, tiny, tmp_path):
    path = tmp_path / "a.tsv"
    few = INDICES[:2]
    certify(classifier, tiny, path, RULES["table"], few)
    with pytest.raises(UsageError, match=r"different settings \(stop.radii was \[.*\], now \[0.1\]\)"):
        certify(classifier, tiny, path, TableStop(radii=(0.1,)), few)
    text = looks_path(path).read_text()
    looks_path(path).write_text(text.replace("\t1\t200\t", "\t1\t201\t", 1))
    with pytest.raises(UsageError, match="restore the original file"):
        certify(classifier, tiny, path, RULES["table"], few)
    (tmp_path / "b.tsv").write_text("mine\n")
    with pytest.raises(UsageError, match="choose another `out`"):
        certify(classifier, tiny, tmp_path / "b.tsv", RULES["table"], few)
    with pytest.raises(UsageError, match="to be unique"):
        certify(classifier, tiny, None, RULES["table"], [3, 5, 3])
    with pytest.raises(UsageError, match="number of shards in `shard` to be one of .*, but got 5"):
        BudgetStop(samples=100, shard=(1, 5))
    with pytest.raises(UsageError, match="`samples` to be at least 1"):
        BudgetStop(samples=0)


def test_sound_and_sequential_go_together(tiny_model, tiny, tmp_path):
    from smoothcert.statistics.integer_noise import grid_noise

    sound = smoothcert.SmoothedClassifier(tiny_model, SIGMA, 10, micro_batch=64, noise=grid_noise(SIGMA, 49))
    certify(sound, tiny, tmp_path / "a.tsv", RULES["table"], INDICES[:3])
    settings = json.loads(sidecar_path(tmp_path / "a.tsv").read_text())["settings"]
    assert settings["noise"] == "grid"
    assert settings["pinned"]["versions"]["torch"] == torch.__version__


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--stop", "table"], ["--stop", "budget", "--budget", "30000"]])
def test_killed_and_resumed_rows_are_the_same(checkpoint, tmp_path, flags):
    """SIGKILL, at moments nobody chose."""
    command = [sys.executable, "-m", "smoothcert", "certify", str(checkpoint), "--n", "2000", "--skip", "50", *flags]
    command += ["--sigma", "0.5", "--device", "cpu"]
    whole, broken = tmp_path / "whole.tsv", tmp_path / "broken.tsv"
    subprocess.run([*command, "--out", str(whole)], check=True, capture_output=True)
    generator, kills = random.Random(0), 0
    for _ in range(30):
        process = subprocess.Popen([*command, "--out", str(broken)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        before = looks_path(broken).stat().st_size if looks_path(broken).exists() else 0
        while process.poll() is None and (
            not looks_path(broken).exists() or looks_path(broken).stat().st_size <= before + 60
        ):
            time.sleep(0.01)
        time.sleep(generator.random() * 0.2)
        if kills < 3:
            process.kill()
        process.communicate()
        if process.returncode == 0 and kills >= 2:
            break
        if process.returncode == 0:
            for path in tmp_path.glob("broken*"):  # a busy machine: it was too fast for us, so from the start
                path.unlink()
        kills = kills + 1 if process.returncode else 0
    assert process.returncode == 0
    assert kills >= 2
    assert rows(broken) == rows(whole)
