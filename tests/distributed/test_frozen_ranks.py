"""Ranks stopped by SIGSTOP, which neither answer nor close their connections: the others end in time and name them."""

import os
import signal
import time

import pytest
from launching import finish, rank_process, smoothcert_group, torchrun

pytestmark = pytest.mark.slow
LIMIT = 3  # seconds without a heartbeat


@pytest.fixture
def job(request, checkpoint, tmp_path):
    """A command, and a function that says if its joint work has begun."""
    if request.param == "train":
        command = ["train", "--dataset", "mnist-mini", "--epochs", 500, "--runs", tmp_path, "--name", "run"]
        return command, (tmp_path / "run/metrics.jsonl").exists
    out = tmp_path / "rows.tsv"
    command = ["certify", checkpoint, "--N", 20_000, "--skip", 5, "--out", out]
    return command, lambda: out.exists() and out.read_text().count("\n") > 2


def wait_until(condition, process):
    end = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(("job", "frozen"), [("train", 0), ("train", 1), ("certify", 0)], indirect=["job"])
def test_the_other_rank_ends_and_names_it(job, frozen):
    command, has_begun = job
    group = smoothcert_group(*[(command, {})] * 2, SMOOTHCERT_RANK_TIMEOUT=LIMIT)
    try:
        wait_until(has_begun, group[0])
        group[frozen].send_signal(signal.SIGSTOP)
        code, output = finish(group[1 - frozen])
    finally:
        for process in group:
            process.kill()
            process.communicate()
    assert code == 1, output
    assert output.count("smoothcert:") == 1, output
    assert f"smoothcert: Rank {frozen} has not responded for {LIMIT} seconds; stopping.\n" in output


@pytest.mark.parametrize("job", ["train"], indirect=True)
def test_of_three_ranks_only_rank_0_reports(job):
    command, has_begun = job
    group = smoothcert_group(*[(command, {})] * 3, SMOOTHCERT_RANK_TIMEOUT=LIMIT)
    try:
        wait_until(has_begun, group[0])
        group[2].send_signal(signal.SIGSTOP)
        results = [finish(process) for process in group[:2]]
    finally:
        for process in group:
            process.kill()
            process.communicate()
    assert [code for code, _ in results] == [1, 1], results
    assert [output.count("smoothcert:") for _, output in results] == [1, 0], results
    assert "Rank 2 has not responded" in results[0][1]


@pytest.mark.parametrize(
    ("job", "frozen"), [("train", 0), ("train", 1), ("certify", 0), ("certify", 1)], indirect=["job"]
)
def test_torchrun_ends_and_the_rank_is_named(job, frozen, monkeypatch):
    """Torchrun hosts the store, and kills a stopped process half a minute after another has ended."""
    monkeypatch.setenv("SMOOTHCERT_RANK_TIMEOUT", str(LIMIT))
    command, has_begun = job
    process = torchrun(2, "-m", "--", "smoothcert", *command)
    wait_until(has_begun, process)
    os.kill(rank_process(process, frozen), signal.SIGSTOP)
    code, output = finish(process)
    assert code == 1, output
    assert output.count("smoothcert: ") == 1, output
    assert f"smoothcert: Rank {frozen} has not responded for {LIMIT} seconds; stopping.\n" in output


@pytest.mark.parametrize("job", ["train"], indirect=True)
def test_a_job_stopped_and_continued_as_a_whole_survives(job):
    command, has_begun = job
    group = smoothcert_group(*[(command, {})] * 2, SMOOTHCERT_RANK_TIMEOUT=LIMIT)
    try:
        wait_until(has_begun, group[0])
        for sent, pause in ((signal.SIGSTOP, 3 * LIMIT), (signal.SIGCONT, LIMIT), (signal.SIGINT, 0)):
            for process in group:
                process.send_signal(sent)
            time.sleep(pause)
        results = [finish(process) for process in group]
    finally:
        for process in group:
            process.kill()
    assert [code for code, _ in results] == [130, 130], results
    assert "interrupted after" in results[0][1]
