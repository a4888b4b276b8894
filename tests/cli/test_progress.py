"""Progress lines and bars."""

import io
import re
import sys

import pytest

from smoothcert.cli import progress
from smoothcert.cli.progress import ProgressBar
from smoothcert.cli.stages import Stages
from smoothcert.training.loop import TrainProgress


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests advance by hand."""

    class Clock:
        now = 1000.0

    monkeypatch.setattr(progress.time, "monotonic", lambda: Clock.now)
    return Clock


def lines_of(capsys):
    return capsys.readouterr().err.splitlines()


def test_speed_forgets_a_slow_start(clock, capsys):
    """After a minute of compilation and 30 s at 1,000 steps/s, the time left is right."""
    bar = ProgressBar("run", 100_000, "steps")
    clock.now += 60
    bar.update(2)
    assert lines_of(capsys) == ["run: 2 of 100,000 steps, 0.0333 steps/s"], "too early for an estimate"
    for second in range(1, 61):
        clock.now += 1
        bar.update(2 + 1000 * second)
    shown = lines_of(capsys)
    assert len(shown) == 6, "a line every ten seconds"
    assert shown[0].endswith("steps/s, 10:30 left"), "the slow start still counts"
    assert shown[-1] == "run: 60,002 of 100,000 steps, 1,000 steps/s, 0:40 left"
    clock.now += 40
    bar.update(100_000, "loss 0.1")
    assert lines_of(capsys) == ["run: 100,000 of 100,000 steps, 625 steps/s, loss 0.1"], "the overall speed at the end"


def test_resumed_work_does_not_count_as_speed(clock, capsys):
    bar = ProgressBar("run", 2000, "images", start=1000)
    clock.now += 10
    bar.update(1100)
    assert lines_of(capsys) == ["run: 1,100 of 2,000 images, 10 images/s, 1:30 left"]


def test_rare_updates_show_a_speed(clock, capsys):
    bar = ProgressBar("run", None, "images")
    for done in (1, 2, 3):
        clock.now += 120
        bar.update(done)
    assert lines_of(capsys) == [f"run: {done} images, 0.00833 images/s" for done in (1, 2, 3)]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_narrow_terminals_keep_title_and_count(width, monkeypatch):
    written = io.StringIO()
    written.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    with ProgressBar("certify", 5000, "images") as bar:
        bar.update(1234, "ACR 0.718, certified accuracy 84.0%, and more than fits on any of these lines")
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.getvalue()).strip().splitlines()[-1]
    assert re.match(r"certify \S+ +1234/5000 ACR 0", shown)
    assert len(shown) <= width


def test_no_speed_before_time_has_passed(clock, capsys):
    ProgressBar("run", 10, "images").update(10)
    ProgressBar("run", 10, "images").update(10, "accuracy 90.0%")
    assert lines_of(capsys) == ["run: 10 of 10 images", "run: 10 of 10 images, accuracy 90.0%"]


def test_votes_that_choose_images_have_a_note(clock, capsys):
    with Stages() as stages:
        show = stages.begin("train", "run")
        show(TrainProgress("run", 4, 100, 4, 2, float("nan"), votes=(0, 60_000)))
        clock.now += 11
        show(TrainProgress("run", 4, 100, 4, 2, float("nan"), votes=(5_120, 60_000)))
    assert lines_of(capsys) == ["run: 4 of 100 steps, epoch 2, votes on 5,120 of 60,000 images"]
