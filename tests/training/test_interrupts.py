"""Ctrl-C and SIGTERM during training: it stops after the current step, and the state is saved."""

import multiprocessing
import os
import random
import re
import signal
import threading
import time

import pytest
import torch
import training_child
from launching import HANGS
from PIL import Image
from safetensors.torch import load_file
from training_child import SAMPLED, configure

from smoothcert.checkpoints import tensor_files
from smoothcert.cli import main
from smoothcert.errors import SmoothcertError
from smoothcert.paper.jobs import Workplace, list_jobs
from smoothcert.paper.reproduce import reproduce
from smoothcert.runtime.deadline import Deadline, OutOfTimeError
from smoothcert.training import image_votes
from smoothcert.training.fit import fit, fit_together
from smoothcert.training.run_folder import RunFolder
from smoothcert.training.setup import setup_run
from smoothcert.training.stepper import Stepper

SIGNALS = (signal.SIGINT, signal.SIGTERM)
COMMAND = ["train", "--name", "run", "--dataset", "mnist-mini", "--epochs", "1", "--device", "cpu"]


@pytest.fixture(autouse=True)
def interruptible():
    """Use the signal handlers of the command line; SIGINT may be ignored where the tests run."""
    before = [signal.signal(number, signal.default_int_handler) for number in SIGNALS]
    yield
    assert [signal.getsignal(number) for number in SIGNALS] == [signal.default_int_handler] * 2, "handlers are restored"
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def signal_in(monkeypatch):
    """Send signals during a given step of the run with a given seed."""

    def arrange(at, *numbers, seed=0):
        set_position = Stepper.set_position

        def signal_and_set(self, epoch, step, rate):
            if (self.seed, step) == (seed, at):
                for number in numbers:
                    signal.raise_signal(number)
            set_position(self, epoch, step, rate)

        monkeypatch.setattr(Stepper, "set_position", signal_and_set)

    return arrange


def same(first, second):
    a, b = load_file(first), load_file(second)
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def saved_steps(folder):
    return RunFolder(folder).load_state()[1]


def new_runs(few, folder, count):
    configs = [configure("gaussian", name=name, seed=seed) for seed, name in enumerate("abc"[:count])]
    return [setup_run(config, folder / config.name, few, few) for config in configs]


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("method", ["gaussian", "catrs"])
def test_training_stops_after_the_current_step_and_saves(number, method, few, tmp_path, signal_in, monkeypatch):
    config, soft = configure(method), torch.full((100, 10), 0.1)
    whole = fit(config, tmp_path / "whole", few, few, soft=soft)
    total = setup_run(config, tmp_path / "run", few, few, soft=soft).total
    for step in (0, 5, 6):
        signal_in(step, number)
        text = f"^test-{method}: interrupted after {step + 1} of {total} steps; the state is saved.$"
        with pytest.raises(KeyboardInterrupt, match=text):
            fit(config, tmp_path / "run", few, few, soft=soft)
        assert saved_steps(tmp_path / "run") == step + 1
    monkeypatch.undo()
    assert same(fit(config, tmp_path / "run", few, few, soft=soft), whole)
    rows = [[{**row, "seconds": 0} for row in RunFolder(tmp_path / name).read_metrics()] for name in ("run", "whole")]
    assert rows[0] == rows[1]


def test_all_runs_that_take_turns_are_saved(few, tmp_path, signal_in, monkeypatch):
    signal_in(5, signal.SIGINT, seed=1)
    with pytest.raises(KeyboardInterrupt) as stop:
        fit_together(new_runs(few, tmp_path / "broken", 3))
    words = "interrupted after {} of 12 steps; the state is saved."
    assert str(stop.value) == f"b: {words.format(6)} c: {words.format(6)} a: {words.format(7)}"
    assert [saved_steps(tmp_path / "broken" / name) for name in "abc"] == [7, 6, 6]
    monkeypatch.undo()
    for folder in ("broken", "whole"):
        fit_together(new_runs(few, tmp_path / folder, 3))
    for name in "abc":
        assert same(*(tmp_path / folder / name / "model.safetensors" for folder in ("broken", "whole")))


def test_a_second_interrupt_ends_at_once(few, tmp_path, signal_in):
    signal_in(2, signal.SIGTERM, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="^$"):
        fit(configure("gaussian"), tmp_path / "run", few, few)
    assert not RunFolder(tmp_path / "run").state.exists()


def test_a_second_interrupt_in_the_middle_of_saving_leaves_the_state_before(few, tmp_path, signal_in, monkeypatch):
    config, run = configure("gaussian"), RunFolder(tmp_path / "run")
    whole = fit(config, tmp_path / "whole", few, few)

    def save_half(tensors, part, header):
        part.write_bytes(b"half")
        if header["step"] == "6":
            signal.raise_signal(signal.SIGINT)
        save(tensors, part, header)

    save = tensor_files.save_file
    monkeypatch.setattr(tensor_files, "save_file", save_half)
    signal_in(5, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="^$"):
        fit(config, run.path, few, few)
    assert saved_steps(run.path) == 4, "the state after the first epoch"
    assert not list(run.path.glob("*.part"))
    monkeypatch.undo()
    assert same(fit(config, run.path, few, few), whole)


def test_an_interrupt_in_the_last_step_is_not_forgotten(few, tmp_path, signal_in):
    signal_in(11, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="^$"):
        fit(configure("gaussian"), tmp_path / "run", few, few)
    assert RunFolder(tmp_path / "run").finished


def test_an_interrupt_takes_precedence_over_an_error(few, tmp_path, signal_in):
    """Code that continues after errors, such as `reproduce`, must not continue after an interrupt."""
    signal_in(2, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="^test-gaussian: the loss of gaussian diverged"):
        fit(configure("gaussian", learning_rate=1e12), tmp_path / "run", few, few)


def test_a_signal_after_an_interrupt_of_another_rank_counts_as_the_first():
    """A launcher signals its processes one after the other; late ones must not abort while others save."""
    deadline, saved = Deadline(None), []

    def work():
        deadline.interrupted = True
        signal.raise_signal(signal.SIGINT)
        saved.append("the state")

    with pytest.raises(KeyboardInterrupt), deadline.heeding_interrupts():
        work()
    assert saved


def test_an_interrupt_does_not_hide_a_bug():
    def fail():
        signal.raise_signal(signal.SIGINT)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), Deadline(None).heeding_interrupts():
        fail()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handled_error_is_not_the_message_of_an_interrupt():
    try:
        raise SmoothcertError("The first try failed.")
    except SmoothcertError:
        with pytest.raises(KeyboardInterrupt, match="^$"), Deadline(None).heeding_interrupts():
            signal.raise_signal(signal.SIGINT)


def test_an_interrupt_while_handlers_are_installed_restores_them(monkeypatch):
    handle = signal.signal

    def handle_and_interrupt(number, handler):
        handle(number, handler)
        if number == signal.SIGINT and handler is not signal.default_int_handler:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(signal, "signal", handle_and_interrupt)
    with pytest.raises(KeyboardInterrupt), Deadline(None).heeding_interrupts():
        pytest.fail("the block must not run")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handlers_of_the_program_are_left_alone(few, tmp_path, signal_in):
    heard = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    signal_in(5, signal.SIGINT)
    try:
        fit(configure("gaussian"), tmp_path / "run", few, few)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert heard == [signal.SIGINT]
    assert RunFolder(tmp_path / "run").finished


def test_other_threads_install_no_handlers(few, tmp_path):
    seen = []

    def watch(progress):
        seen.extend(signal.getsignal(number) for number in SIGNALS)

    options = {"on_progress": watch}
    thread = threading.Thread(target=fit, args=(configure("gaussian"), tmp_path / "run", few, few), kwargs=options)
    thread.start()
    thread.join()
    assert RunFolder(tmp_path / "run").finished
    assert set(seen) == {signal.default_int_handler}


def test_the_command_line_reports_an_interrupt(tmp_path, capsys, signal_in, monkeypatch):
    command = [*COMMAND, "--batch", "512", "--runs", str(tmp_path)]
    signal_in(2, signal.SIGTERM)
    assert main(command) == 130
    text = "smoothcert: run: interrupted after 3 of 12 steps; the state is saved. Run the same command to resume.\n"
    assert text in capsys.readouterr().err
    assert saved_steps(tmp_path / "run") == 3
    monkeypatch.undo()
    assert main(command) == 0


def test_reproduce_stops_with_the_current_training(tmp_path, signal_in):
    jobs = list_jobs("mnist", "gaussian-*", dataset="mnist-mini", epochs=1, batch=512)
    signal_in(2, signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt, match="mnist-gaussian-0.25: interrupted after 3 of 12 steps"):
        reproduce(jobs, Workplace(tmp_path, n=200), on_stage=lambda kind, name: lambda progress: None)
    assert saved_steps(tmp_path / "mnist-gaussian-0.25") == 3
    assert [path.name for path in tmp_path.iterdir()] == ["mnist-gaussian-0.25"]


def test_a_dry_run_mentions_no_saved_state(tmp_path, capsys, signal_in):
    signal_in(2, signal.SIGINT)
    assert main([*COMMAND, "--batch", "512", "--runs", str(tmp_path), "--dry-run"]) == 130
    error = capsys.readouterr().err
    assert "smoothcert: interrupted. Run the same command to resume." in error
    assert "state" not in error


def launch(log, *arguments, **options):
    """Start `smoothcert` in its own session, forked from a server that has already imported torch."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["smoothcert.training.runs", "smoothcert.cli", "safetensors.torch", "torch._dynamo"])
    words = ["train", "--device", "cpu", *map(str, arguments)]
    process = context.Process(target=training_child.command, args=(log, words), kwargs=options)
    process.start()
    return process


def wait_until(condition, process, log=None):
    """Wait for a condition, or for the end of the process; with `log`, its end is an error that shows the log."""
    end = time.monotonic() + HANGS
    while process.is_alive() and not condition():
        assert time.monotonic() < end
        time.sleep(0.001)
    assert log is None or process.is_alive(), log.read_text()


@pytest.mark.slow
def test_a_command_interrupted_at_any_moment_resumes_to_the_same_weights(tmp_path):
    """Three runs at once on a slow disk; some second signals arrive while the state is being saved."""
    recipes = [tmp_path / f"{name}.toml" for name in "abc"]
    for seed, path in enumerate(recipes):
        fields = {"name": f'"{path.stem}"', "dataset": '"mnist-mini"', "epochs": 2, "batch": 64, "seed": seed}
        path.write_text("".join(f"{name} = {value}\n" for name, value in fields.items()))
    whole = launch(tmp_path / "whole.log", *recipes, "--runs", tmp_path / "whole")
    folders = [RunFolder(tmp_path / "broken" / name) for name in "abc"]
    generator, log, steps = random.Random(0), tmp_path / "log", [0, 0, 0]
    begun = folders[-1].path / ".lock"
    second = [None, signal.SIGKILL, None, signal.SIGINT, None, signal.SIGTERM]
    for number, then in enumerate(second):
        for left in (tmp_path / "broken").glob("*/state*.part"):  # by SIGKILL
            left.unlink()
        begun.unlink(missing_ok=True)
        process = launch(log, *recipes, "--runs", tmp_path / "broken", slow_disk=True)
        wait_until(begun.exists, process)
        time.sleep(generator.uniform(0, 0.2))
        os.kill(process.pid, SIGNALS[number % 2])
        if then:
            wait_until(lambda: any((tmp_path / "broken").glob("*/state*.part")), process)
            os.kill(process.pid, then)
        process.join()
        said, before = log.read_text(), steps
        steps = [(folder.load_state() or [{}, 0])[1] for folder in folders]  # raises if it is damaged
        assert all(new >= old for new, old in zip(steps, before, strict=True))
        assert process.exitcode == (-then if then == signal.SIGKILL else 130), said
        assert "Traceback" not in said
        if not then:
            reported = dict(re.findall(r"(\w): interrupted after (\d+) of", said))
            assert [int(reported[name]) for name in "abc"] == steps
    process = launch(log, *recipes, "--runs", tmp_path / "broken")
    for running in (process, whole):
        running.join()
        assert running.exitcode == 0
    for name in "abc":
        assert same(*(tmp_path / folder / name / "model.safetensors" for folder in ("broken", "whole")))


@pytest.mark.parametrize("number", SIGNALS)
def test_workers_ignore_signals(number, tmp_path):
    """A terminal and `timeout` signal all processes of a group. Workers are spawned here, not forked."""
    for photo in range(8):
        folder = tmp_path / "photos" / ("train" if photo < 4 else "test") / f"class{photo % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), (30 * photo, 0, 0)).save(folder / f"{photo}.png")
    options = {"dataset": tmp_path / "photos", "architecture": "cifar_resnet8", "resize": 36, "crop": 32, "batch": 2}
    options |= {"augmentation": "resized-crop-flip", "workers": 1, "epochs": 2000, "runs": tmp_path, "name": "run"}
    run, log = RunFolder(tmp_path / "run"), tmp_path / "log"
    process = launch(log, *(text for name, value in options.items() for text in (f"--{name}", value)), spawn=True)
    wait_until(run.metrics.is_file, process, log)
    os.killpg(process.pid, number)
    process.join()
    said = log.read_text()
    assert process.exitcode == 130, said
    assert f"run: interrupted after {saved_steps(run.path):,} of 4,000 steps; the state is saved." in said
    assert "Traceback" not in said


def test_an_interrupt_stops_the_votes_that_choose_images(few, tmp_path, monkeypatch):
    """The votes are cast again when the run is resumed, which ends with the same weights."""
    monkeypatch.setattr(image_votes, "_IMAGES", 10)
    config, seen = configure("gaussian", **SAMPLED), []
    whole = fit(config, tmp_path / "whole", few, few)
    count = image_votes._correct_votes

    def interrupt(*arguments):
        seen.append(arguments)
        if len(seen) == 3:
            signal.raise_signal(signal.SIGINT)
        return count(*arguments)

    monkeypatch.setattr(image_votes, "_correct_votes", interrupt)
    with pytest.raises(KeyboardInterrupt, match="interrupted after 8 of 12 steps; the state is saved"):
        fit(config, tmp_path / "run", few, few)
    assert len(seen) == 3
    weights, expected = (load_file(path) for path in (fit(config, tmp_path / "run", few, few), whole))
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_votes_stopped_before_the_first_step_leave_no_state(few, tmp_path, monkeypatch):
    """The message doesn't claim that a state was saved."""
    monkeypatch.setattr(image_votes, "_IMAGES", 10)
    count = image_votes._correct_votes

    def interrupt(*arguments):
        signal.raise_signal(signal.SIGINT)
        return count(*arguments)

    monkeypatch.setattr(image_votes, "_correct_votes", interrupt)
    config = configure("gaussian", **{**SAMPLED, "sampling_epoch": 0})
    with pytest.raises(KeyboardInterrupt, match="interrupted after 0 of 12 steps; there is no state to save yet"):
        fit(config, tmp_path / "run", few, few)
    assert not RunFolder(tmp_path / "run").state.is_file()


def test_a_time_limit_stops_the_votes_but_for_those_a_process_begins_with(few, tmp_path, monkeypatch):
    monkeypatch.setattr(image_votes, "_IMAGES", 10)
    config, count, times = configure("gaussian", **SAMPLED), image_votes._correct_votes, []

    def run_out_of_time(*arguments):
        times.append(Deadline.left)
        monkeypatch.setattr(Deadline, "left", 0.0)
        return count(*arguments)

    monkeypatch.setattr(image_votes, "_correct_votes", run_out_of_time)
    with pytest.raises(OutOfTimeError, match="time is up after 8 of 12 steps; the state is saved"):
        fit(config, tmp_path / "run", few, few)
    assert len(times) == 1
    with pytest.raises(OutOfTimeError, match="time is up after 9 of 12 steps"):
        fit(config, tmp_path / "run", few, few)
