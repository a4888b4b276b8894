"""One process at a time writes a results file, and what it could not finish does not stay."""

import itertools
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import writing_child
from launching import environment

import smoothcert
from smoothcert.errors import Notice, SmoothcertError, UsageError
from smoothcert.results.lock import ResultsLock
from smoothcert.results.naming import counts_path, looks_path
from smoothcert.results.verify import read_verified
from smoothcert.stopping import TableStop

OPTIONS = {"n0": 20, "n": 300, "indices": range(12)}
STOPS = {"fixed": None, "table": TableStop(radii=(0.0, 0.5))}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))


def certify(network, data, path, kind, **options):
    smoothed = smoothcert.SmoothedClassifier(network, 0.25, 10, micro_batch=64)
    return smoothcert.certify_dataset(smoothed, data, path, stop=STOPS[kind], **{**OPTIONS, **options})


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(("first", "second"), [*itertools.product(STOPS, STOPS)])
def test_all_files_of_a_result_have_one_lock(model, mini, tmp_path, first, second):
    refused = []

    def intrude(progress):
        before = content(tmp_path)
        with pytest.raises(UsageError, match="is being written by another process"):
            certify(model, mini, tmp_path / "a.tsv", second, seed=1)
        assert content(tmp_path) == before
        refused.append(second)

    certify(model, mini, tmp_path / "a.tsv", first, on_progress=intrude)
    assert refused
    assert len(read_verified(tmp_path / "a.tsv")) == 12
    assert {path.suffix for path in tmp_path.iterdir()} == {".tsv", ".json"}, "the lock is gone"


@pytest.mark.parametrize("kind", STOPS)
def test_a_refused_command_leaves_no_trace(model, mini, tmp_path, kind):
    certify(model, mini, tmp_path / "a.tsv", "fixed")
    before = content(tmp_path)
    with pytest.raises(UsageError, match="different settings"):
        certify(model, mini, tmp_path / "a.tsv", kind, seed=1)
    assert content(tmp_path) == before


@pytest.mark.parametrize("kind", STOPS)
def test_a_command_that_made_no_row_leaves_no_trace(mini, tmp_path, kind):
    broken = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    broken[1].bias.data.fill_(float("nan"))
    with pytest.raises(SmoothcertError, match="NaN"):
        certify(broken, mini, tmp_path / "a.tsv", kind)
    assert content(tmp_path) == {}


@pytest.mark.parametrize(("kind", "companion"), [("fixed", counts_path), ("fixed", Path), ("table", looks_path)])
def test_a_file_with_random_bytes_is_named_and_kept(model, mini, tmp_path, kind, companion):
    path = tmp_path / "a.tsv"
    certify(model, mini, path, kind)
    companion(path).write_bytes(companion(path).read_bytes()[:100] + b"\xff\xf6")
    before = content(tmp_path)
    with pytest.raises(SmoothcertError, match=f"{companion(path).name} cannot be read as UTF-8 .*; move the damaged"):
        certify(model, mini, path, kind)
    assert content(tmp_path) == before


@pytest.mark.parametrize("kind", STOPS)
def test_partial_files_of_a_killed_command_are_removed(model, mini, tmp_path, kind):
    for name in ("a.tsv", "a.counts.tsv", "a.looks.tsv", "a.json"):
        (tmp_path / f"{name}.part").write_text("half a")
    (tmp_path / "a.tsv.lock").touch()
    (tmp_path / "b.tsv.part").write_text("not ours")
    certify(model, mini, tmp_path / "a.tsv", kind)
    assert [path.name for path in tmp_path.iterdir() if path.suffix in (".part", ".lock")] == ["b.tsv.part"]


@pytest.mark.parametrize(("kind", "companion"), [("fixed", counts_path), ("fixed", Path), ("table", looks_path)])
def test_a_file_that_is_removed_during_a_run_is_an_error(model, mini, tmp_path, kind, companion, monkeypatch):
    monkeypatch.setattr("smoothcert.certification.sequential.samples_at_once", lambda device: 300)
    path = tmp_path / "a.tsv"

    def remove(progress):
        companion(path).unlink(missing_ok=True)

    with pytest.raises(SmoothcertError, match=rf"{companion(path).name} was removed or replaced"):
        certify(model, mini, path, kind, on_progress=remove)


def test_a_lock_that_its_owner_removed_is_not_taken(tmp_path, monkeypatch):
    """Another process may have opened the file just before the owner removed it."""
    path, owner = tmp_path / "a.tsv", ResultsLock(tmp_path / "a.tsv")
    from smoothcert.results import lock

    opened, plain = [], lock.open_locked

    def release_between(file, message):
        if not opened:
            opened.append(file.open("a+"))  # opened, not locked yet
            owner.release()
            return opened[0]
        return plain(file, message)

    monkeypatch.setattr(lock, "open_locked", release_between)
    with ResultsLock(path):
        assert (tmp_path / "a.tsv.lock").exists()
        with pytest.raises(UsageError, match="another process"):
            ResultsLock(path)


def first_function(x):
    return torch.cat([x.flatten(1).mean(1, keepdim=True), x.flatten(1)[:, :9]], 1)


def second_function(x):
    return -first_function(x)


def interrupt(progress):
    raise KeyboardInterrupt


@pytest.mark.parametrize("kind", STOPS)
@pytest.mark.parametrize(
    ("resumed_by", "message"),
    [
        (first_function, "may come from a function other than .*first_function"),
        (second_function, "not .*second_function"),
    ],
)
def test_resuming_with_a_plain_function_warns(mini, tmp_path, kind, resumed_by, message):
    with pytest.raises(KeyboardInterrupt):
        certify(first_function, mini, tmp_path / "a.tsv", kind, on_progress=interrupt, n=301)
    with pytest.warns(Notice, match=message):
        certify(resumed_by, mini, tmp_path / "a.tsv", kind, n=301)
    segments = read_verified(tmp_path / "a.tsv").about["segments"]
    assert [segment["function"]["name"] for segment in segments] == ["first_function", resumed_by.__name__]
    assert all(len(segment["function"]["source_sha256"]) == 64 for segment in segments)


@pytest.mark.parametrize("kind", STOPS)
def test_votes_of_two_kernels_are_not_mixed(mini, tmp_path, kind, monkeypatch, trained_lenet):
    with pytest.raises(KeyboardInterrupt):
        certify(trained_lenet, mini, tmp_path / "a.tsv", kind, on_progress=interrupt, n=301)
    votes = counts_path(tmp_path / "a.tsv") if kind == "fixed" else looks_path(tmp_path / "a.tsv")
    before = votes.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("smoothcert.certification.job.voting_kernel", lambda *settings: "another")
        with pytest.raises(UsageError, match="votes come from another kernel .*now another"):
            certify(trained_lenet, mini, tmp_path / "a.tsv", kind, n=301)
        assert votes.read_bytes() == before
        certify(trained_lenet, mini, tmp_path / "b.tsv", kind, n=301)
    assert read_verified(tmp_path / "b.tsv").about["segments"][0]["kernel"] == "another"
    certify(trained_lenet, mini, tmp_path / "b.tsv", kind, n=301)  # it is finished
    certify(trained_lenet, mini, tmp_path / "a.tsv", kind, n=301)


def test_a_finished_file_or_an_identified_function_does_not_warn(mini, tmp_path, recwarn):
    certify(first_function, mini, tmp_path / "a.tsv", "fixed")
    certify(first_function, mini, tmp_path / "a.tsv", "fixed")
    with pytest.raises(KeyboardInterrupt):
        certify(first_function, mini, tmp_path / "b.tsv", "fixed", on_progress=interrupt, model={"sha256": "ab"})
    certify(first_function, mini, tmp_path / "b.tsv", "fixed", model={"sha256": "ab"})
    assert not [warning for warning in recwarn if issubclass(warning.category, Notice)]


PAIRS = [("fixed", "table"), ("fixed", "other seed"), ("budget", "table"), ("fixed", "recertified"), ("table", "fixed")]


@pytest.mark.slow
def test_of_two_processes_one_writes_the_file(tmp_path):
    source = tmp_path / "source.tsv"
    writing_child.write("fixed", source, source)
    command = [sys.executable, writing_child.__file__, str(source)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment()}
    children = [subprocess.Popen(command, **pipes) for _ in range(2)]
    generator, refusals = random.Random(0), set()
    try:
        rows = {}
        for kind in {*itertools.chain(*PAIRS)}:
            path = tmp_path / f"{kind}.tsv"
            assert tell(children[0], kind, path) is None
            assert children[0].stdout.readline() == "done\n"
            rows[kind] = rows_of(path)
        tell(children[1], "fixed", tmp_path / "warm.tsv")
        assert children[1].stdout.readline() == "done\n"
        for number, pair in zip(range(50), itertools.cycle(PAIRS)):
            path = tmp_path / str(number) / "a.tsv"
            for child, kind in zip(children, pair, strict=True):
                tell(child, kind, path)
                time.sleep(generator.choice([0, 0, 0.001, 0.01, 0.05]))
            outcomes = [child.stdout.readline() for child in children]
            done = [kind for kind, outcome in zip(pair, outcomes, strict=True) if outcome == "done\n"]
            assert len(done) == 1, outcomes
            assert rows_of(path) == rows[done[0]]
            read_verified(path)
            assert {file.suffix for file in path.parent.iterdir()} == {".tsv", ".json"}
            assert looks_path(path).exists() == (done[0] in ("table", "budget"))
            refusals |= {word for word in ("another process", "different", "exists") if word in "".join(outcomes)}
    finally:
        for child in children:
            child.stdin.close()
            child.wait(timeout=60)
    assert "another process" in refusals


def tell(child, kind, path):
    child.stdin.write(f"{kind}\t{path}\n")
    child.stdin.flush()


def rows_of(path):
    return [line.rsplit("\t", 1)[0] for line in path.read_text().splitlines()]
