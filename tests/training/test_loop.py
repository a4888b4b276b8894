"""The training loop: bit-identical after a kill at any moment, a no-op if finished, clear errors."""

import multiprocessing
import random
import time

import pytest
import torch
import training_child
from safetensors.torch import load_file
from training_child import SAMPLED, configure, train

import smoothcert
from smoothcert.distributed.ranks import Ranks
from smoothcert.errors import Notice, SmoothcertError, UsageError
from smoothcert.methods import METHODS
from smoothcert.runtime.deadline import OutOfTimeError
from smoothcert.training.compute import plan_epoch, with_defaults
from smoothcert.training.config import read_config
from smoothcert.training.fit import fit, fit_together
from smoothcert.training.image_votes import noisy_accuracy
from smoothcert.training.run_folder import RunFolder
from smoothcert.training.setup import setup_run


def launch(config, folder, data):
    """Start a training process, forked from a server that has already imported torch."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["smoothcert.training.fit", "safetensors.torch", "torch._dynamo"])
    process = context.Process(target=training_child.single_threaded, args=(config, folder, data))
    process.start()
    return process


def same(first, second):
    a, b = load_file(first), load_file(second)
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def modified(path):
    return path.stat().st_mtime_ns if path.exists() else 0


@pytest.mark.parametrize(
    "method",
    [name if name in ("catrs", "first-failure") else pytest.param(name, marks=pytest.mark.slow) for name in METHODS],
)
def test_killed_and_resumed_weights_are_bit_identical(method, few, tmp_path):
    """SIGKILL soon after a save and in the middle of one; the weights equal those of an uninterrupted run."""
    sampled = SAMPLED if method == "first-failure" else {}
    config, few = configure(method, epochs=16, batch=16, **sampled), few.subset(range(36))
    reference = launch(config, tmp_path / "whole", few)
    broken, generator, kills = RunFolder(tmp_path / "broken"), random.Random(method), {"saving": 0, "training": 0}
    part = broken.state.with_name(broken.state.name + ".part")
    while not broken.finished:
        before, during_save = modified(broken.state), sum(kills.values()) % 2 == 0
        process = launch(config, broken.path, few)
        while process.is_alive() and (not part.exists() if during_save else modified(broken.state) == before):
            time.sleep(0 if during_save else 0.0005)
        time.sleep(0 if during_save else generator.uniform(0, 0.05))
        if process.is_alive() and sum(kills.values()) < 4:
            process.kill()
            kills["saving" if during_save else "training"] += 1
        process.join()
    reference.join()
    assert min(kills.values()) >= 1
    whole = RunFolder(tmp_path / "whole")
    assert same(broken.model, whole.model)
    rows = [[{**row, "seconds": 0} for row in folder.read_metrics()] for folder in (broken, whole)]
    assert rows[0] == rows[1]
    assert [row["epoch"] for row in rows[0]] == list(range(config.epochs))


def test_a_run_folder_holds_what_was_run(few, tmp_path):
    config = configure("catrs")
    path = train(config, tmp_path / "run", few)
    run = RunFolder(tmp_path / "run")
    assert read_config(run.config) == with_defaults(config)
    assert not run.state.exists()
    last = run.read_metrics()[-1]
    assert {"epoch", "learning_rate", "loss", "low", "high", "sure", "test_accuracy", "seconds"} == last.keys()
    loaded = smoothcert.load_checkpoint(run.path)
    assert loaded.about["method"] == "catrs"
    assert (loaded.about["dataset"], loaded.about["sigma"]) == ("mnist-mini", 0.25)
    assert "smoothcert certify" in run.card.read_text()
    before = path.stat().st_mtime_ns
    assert train(config, tmp_path / "run", few) == path
    assert path.stat().st_mtime_ns == before, "a finished run is a no-op"
    run.state.write_bytes(b"left by a kill just after the network was written")
    train(config, tmp_path / "run", few)
    assert not run.state.exists()
    with pytest.raises(UsageError, match="different configuration \\(different seed"):
        train(configure("catrs", seed=1), tmp_path / "run", few)


@pytest.mark.parametrize("training", [True, False])
def test_measuring_the_accuracy_does_not_change_the_network(training, few):
    """Otherwise BatchNorm would learn nothing after the first epoch."""
    model = smoothcert.create_model("cifar_resnet20", in_channels=1).train(training)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    noisy_accuracy(model, few.subset(range(10)), configure("gaussian"))
    assert all(module.training is training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_ranks_share_the_measurement_of_the_accuracy(few):
    class Unsummed(Ranks):
        def total(self, value):
            return value

    model, config = smoothcert.create_model("lenet"), configure("gaussian")
    for ranks, indices in ((3, torch.arange(len(few))), (5, torch.tensor([7, 30, 8]))):
        parts = [noisy_accuracy(model, few, config, Unsummed(rank, ranks), indices) for rank in range(ranks)]
        assert sum(parts) == pytest.approx(noisy_accuracy(model, few, config, indices=indices), abs=1e-3)


def test_seeds_make_different_runs_and_the_same_one_again(few, tmp_path):
    paths = [
        train(configure("gaussian", epochs=1, seed=seed), tmp_path / name, few)
        for seed, name in ((0, "a"), (0, "b"), (1, "c"))
    ]
    assert same(paths[0], paths[1])
    assert not same(paths[0], paths[2])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_autocast_of_the_caller_changes_nothing(few, tmp_path, precision):
    """Autocast caches casts of weights until the outermost block ends, which must be within a step."""
    config = configure("gaussian", epochs=1, batch=16, precision=precision)
    expected = fit(config, tmp_path / "expected", few, few)
    with torch.autocast("cpu", torch.bfloat16):
        assert same(fit(config, tmp_path / "found", few, few), expected)


def test_whole_and_split_steps(few):
    assert plan_epoch(100, 32, 1) == [(0, 32), (32, 32), (64, 32), (96, 4)]
    assert [size for _, size in plan_epoch(100, 32, 4)] == [8] * 12 + [1] * 4
    assert len(plan_epoch(60_000, 256, 4)) == 940
    assert len(plan_epoch(50_000, 256, 4)) == 784
    with pytest.raises(UsageError, match="Mini-batches of 3 images are too small for 4 steps"):
        plan_epoch(3, 32, 4)


def test_steps_equal_plain_pytorch(few, tmp_path):
    """Two epochs against plain PyTorch with the same draws: momentum, weight decay and mean loss."""
    from smoothcert.philox import Purpose, permutation
    from smoothcert.training.setup import new_model
    from smoothcert.training.step_draws import StepDraws

    config = configure("gaussian", batch=50, epochs=2, learning_rate=0.1)
    trained = smoothcert.load_checkpoint(train(config, tmp_path / "run", few)).model
    model = new_model(config, few).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    losses = []
    for step in range(4):
        epoch, number = divmod(step, 2)
        chosen = permutation(0, (epoch, 0, Purpose.ORDER), 100)[50 * number : 50 * (number + 1)]
        x = few.floats(chosen)
        loss = torch.nn.functional.cross_entropy(
            model(x + 0.25 * StepDraws(0, step).noise(x, 1)[0]), few.labels[chosen]
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    written = [row["loss"] for row in RunFolder(tmp_path / "run").read_metrics()]
    assert written == pytest.approx([sum(losses[:2]) / 2, sum(losses[2:]) / 2], rel=1e-5)
    for (name, ours), theirs in zip(trained.state_dict().items(), model.state_dict().values(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6), name


def test_runs_that_take_turns_equal_runs_alone(few, tmp_path):
    configs = [configure("catrs", name="a", sigma=0.5), configure("gaussian", name="b", epochs=2)]
    soft = torch.full((100, 10), 0.1)
    alone = [fit(config, tmp_path / "alone" / config.name, few, few, soft=soft) for config in configs]
    together = [setup_run(config, tmp_path / "together" / config.name, few, few, soft=soft) for config in configs]
    fit_together(together)
    for model, training in zip(alone, together, strict=True):
        assert same(model, training.folder.model)
    assert [setup_run(c, tmp_path / "alone" / c.name, few, few, soft=soft) for c in configs] == [None, None]


def test_steps_with_varying_shapes_are_not_compiled(few, tmp_path):
    config, soft = configure("catrs", options={"attack": "masked"}), torch.full((100, 10), 0.1)
    with pytest.warns(Notice, match="steps run uncompiled, because their shapes may vary"):
        assert not setup_run(config, tmp_path / "run", few, few, soft=soft, compile=True).compiled


def test_a_failing_run_does_not_stop_the_others(few, tmp_path):
    bad, good = configure("gaussian", name="bad", learning_rate=1e12), configure("gaussian", name="good")
    runs = [setup_run(config, tmp_path / config.name, few, few) for config in (bad, good)]
    with pytest.raises(SmoothcertError, match="bad: the loss of gaussian diverged"):
        fit_together(runs)
    assert runs[1].folder.finished


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no memory"), RuntimeError("CUDA error: out of memory")])
def test_a_run_out_of_memory_does_not_stop_the_others(few, tmp_path, monkeypatch, error):
    runs = [setup_run(configure("gaussian", name=name), tmp_path / name, few, few) for name in ("large", "small")]

    def fail(*_):
        raise error

    monkeypatch.setattr(runs[0].stepper, "take_step", fail)
    with pytest.raises(SmoothcertError, match="large: the device's memory is full; train fewer runs at once"):
        fit_together(runs)
    assert [run.folder.finished for run in runs] == [False, True]


def test_several_runs_out_of_time_raise_one_error(few, tmp_path):
    runs = [setup_run(configure("gaussian", name=name), tmp_path / name, few, few) for name in "ab"]
    with pytest.raises(OutOfTimeError, match=r"a: time is up.*b: time is up"):
        fit_together(runs, 0.0)


def test_tensorboard_shows_every_epoch_once(few, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    config = configure("gaussian", epochs=3)
    fit(config, tmp_path / "run", few, few)
    board = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    board.Reload()
    shown = [(event.step, event.value) for event in board.Scalars("loss")]
    metrics = RunFolder(tmp_path / "run").read_metrics()
    assert shown == [(line["epoch"], pytest.approx(line["loss"])) for line in metrics]


def test_without_momentum(few, tmp_path):
    config = configure("gaussian", momentum=0.0)
    whole = fit(config, tmp_path / "whole", few, few)
    with pytest.raises(OutOfTimeError):
        fit(config, tmp_path / "slices", few, few, time_limit=0.0)
    assert same(fit(config, tmp_path / "slices", few, few), whole)


def test_two_processes_cannot_train_one_run(few, tmp_path):
    run = setup_run(configure("gaussian"), tmp_path / "run", few, few)
    with RunFolder(tmp_path / "run").locked(), pytest.raises(UsageError, match="run is being trained by another"):
        fit_together([run])
    fit_together([setup_run(configure("gaussian"), tmp_path / "run", few, few)])


def test_a_run_that_another_process_finished_meanwhile_is_left_alone(few, tmp_path):
    """On a GPU, training again would give another network and invalidate its certificates."""
    late = setup_run(configure("gaussian"), tmp_path / "run", few, few)
    path = fit(configure("gaussian"), tmp_path / "run", few, few)
    before = path.stat().st_mtime_ns
    fit_together([late])
    assert path.stat().st_mtime_ns == before


def test_of_two_configurations_opened_together_one_is_trained(few, tmp_path):
    """The second one opens the folder after the first one has, but before it trains."""
    folder, configs = tmp_path / "run", [configure("gaussian", seed=seed) for seed in (0, 1)]
    first, second = (setup_run(config, folder, few, few) for config in configs)
    fit_together([first])
    assert RunFolder(folder).read_config().seed == 0, "the configuration that was trained"
    with pytest.raises(UsageError, match=r"different configuration \(different seed\)"):
        fit_together([second])


def test_the_time_of_an_epoch_includes_all_processes(few, tmp_path):
    config, run = configure("gaussian", epochs=3), RunFolder(tmp_path / "run")
    for number in range(6):  # one step each; an epoch has four
        with pytest.raises(OutOfTimeError):
            fit(config, run.path, few, few, time_limit=0.0)
        if number in (0, 5):
            run.write_segment({**run.read_segments()[-1], "seconds": 200.0 if number else 500.0})
    fit(config, run.path, few, few)
    first, second, third = (row["seconds"] for row in run.read_metrics())
    assert all(segment["seconds"] > 0 for segment in run.read_segments())
    assert 500 <= first < 600
    assert 200 <= second < 300
    assert third < 100


def test_entries_of_lost_work_are_dropped(tmp_path):
    """After a kill, or if an older state was restored, entries of later epochs and processes are dropped."""
    run = RunFolder(tmp_path / "run")
    for first_step, seconds in ((0, 100.0), (3, 50.0), (9, 70.0)):
        run.write_segment({"first_step": first_step, "seconds": seconds})
    for epoch, seconds in ((0, 120.0), (1, 25.0), (2, 60.0)):
        run.write_metrics({"epoch": epoch, "seconds": seconds})
    assert run.seconds_since(1, 6) == 100 + 50 - 120
    assert run.seconds_since(0, 3) == 100
    run.write_metrics({"epoch": 1, "seconds": 31.0})
    assert [(row["epoch"], row["seconds"]) for row in run.read_metrics()] == [(0, 120.0), (1, 31.0)]
    run.write_segment({"first_step": 6, "seconds": 1.0})
    assert [part["first_step"] for part in run.read_segments()] == [0, 3, 6]


@pytest.mark.parametrize(("seconds", "saved"), [(0.0, 2), (60.0, None)])
def test_the_state_is_saved_once_a_minute(seconds, saved, few, tmp_path, monkeypatch):
    """The state that remains after a kill in the middle of an epoch."""
    monkeypatch.setattr("smoothcert.training.pacing._SECONDS_BETWEEN_REPORTS", 0.0)
    monkeypatch.setattr("smoothcert.training.run_log._SECONDS_BETWEEN_SAVES", seconds)

    def stop(progress):
        if progress.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(configure("gaussian"), tmp_path / "run", few, few, on_progress=stop)
    state = RunFolder(tmp_path / "run").load_state()
    assert (state and state[1]) == saved


@pytest.mark.parametrize("name", ["metrics.jsonl", "segments.json"])
def test_damaged_records_are_named(name, few, tmp_path):
    config = configure("gaussian", epochs=2)
    with pytest.raises(KeyboardInterrupt):
        fit(config, tmp_path / "run", few, few, on_progress=stop_after_an_epoch)
    (tmp_path / "run" / name).write_text("{")
    with pytest.raises(SmoothcertError, match=rf"{name} is damaged .*; delete it to resume without it"):
        fit(config, tmp_path / "run", few, few)
    (tmp_path / "run" / name).unlink()
    fit(config, tmp_path / "run", few, few)


def stop_after_an_epoch(progress):
    if progress.metrics:
        raise KeyboardInterrupt


@pytest.mark.slow
def test_a_time_limit_saves_and_resumes(few, tmp_path):
    config = configure("gaussian", epochs=40)
    with pytest.raises(OutOfTimeError, match="the state is saved"):
        train(config, tmp_path / "run", few, time_limit=0.5)
    train(config, tmp_path / "run", few)
    train(config, tmp_path / "whole", few)
    assert same(tmp_path / "run/model.safetensors", tmp_path / "whole/model.safetensors")


@pytest.mark.parametrize("rate", [1e6, 1e38])  # a loss that is too large, and NaN
def test_divergence_names_step_method_and_last_good_state(rate, few, tmp_path):
    with pytest.raises(SmoothcertError, match="loss of gaussian diverged .* at step 1;") as stop:
        train(configure("gaussian", learning_rate=rate), tmp_path / "run", few)
    assert "`learning_rate`" in str(stop.value)
    assert not (tmp_path / "run/model.safetensors").exists()
    state = tmp_path / "run/state.safetensors"
    assert not state.exists() or all(
        torch.isfinite(t).all() for t in load_file(state).values() if t.is_floating_point()
    )


def interrupted_twice(config, folder, data):
    """Save two states: after the first and the second epoch."""
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            fit(config, folder, data, data, on_progress=stop_after_an_epoch)


def flip_a_bit(file):
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)


def test_a_damaged_state_falls_back_to_the_one_before(few, tmp_path):
    """One flipped bit among the weights is noticed, and the run ends with the same weights."""
    config = configure("gaussian", epochs=3)
    interrupted_twice(config, tmp_path / "run", few)
    last, before = tmp_path / "run/state.safetensors", tmp_path / "run/state.previous.safetensors"
    assert last.is_file()
    assert before.is_file()
    flip_a_bit(last)
    (tmp_path / "run/metrics.jsonl.part").write_text("half")
    with pytest.warns(Notice, match="SHA-256 in its header. The run is resumed from the previous state, at step"):
        fit(config, tmp_path / "run", few, few)
    fit(config, tmp_path / "whole", few, few)
    assert same(tmp_path / "run/model.safetensors", tmp_path / "whole/model.safetensors")
    assert not [path.name for path in (tmp_path / "run").iterdir() if path.name.startswith("state")]
    assert not list((tmp_path / "run").glob("*.part")), "what a killed process left half written is removed"


def test_two_damaged_states_are_named(few, tmp_path):
    config = configure("gaussian", epochs=3)
    interrupted_twice(config, tmp_path / "run", few)
    for state in (tmp_path / "run").glob("state*"):
        state.write_bytes(state.read_bytes()[:100])
    message = r"state\.safetensors cannot be read .* delete state\.safetensors and state\.previous\.safetensors"
    with pytest.raises(SmoothcertError, match=message):
        fit(config, tmp_path / "run", few, few)


@pytest.mark.parametrize("left", ["model.safetensors", "state.safetensors", "metrics.jsonl"])
def test_a_run_without_its_configuration_is_not_claimed_by_another(left, few, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / left).write_bytes(b"of a run that was trained in another way")
    with pytest.raises(UsageError, match="contains a run, but its configuration, config.toml, is missing"):
        fit(configure("gaussian"), tmp_path / "run", few, few)
    assert [path.name for path in (tmp_path / "run").iterdir()] == [left]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_training_raises_acr_well_over_the_untrained_network(method, mini, tmp_path):
    """At most a minute per method on mnist-mini."""
    from smoothcert.statistics.metrics import average_certified_radius

    data = smoothcert.load_dataset("mnist-mini", "train")
    # At its usual weight, MACER's radius term undoes two epochs of learning.
    few = {"options": {"num_noises": 4, "weight": 1.0}} if method == "macer" else {}
    config = configure(method, sigma=0.5, batch=64, epochs=2, learning_rate=0.02, lr_step=50, **few)
    soft = torch.nn.functional.one_hot(data.labels, 10).float() * 0.9 + 0.01
    path = fit(config, tmp_path / "run", data, mini.subset(range(100)), soft=soft)
    radii = []
    torch.manual_seed(0)
    for model in (smoothcert.create_model("lenet"), smoothcert.load_checkpoint(path).model):
        smoothed = smoothcert.SmoothedClassifier(model, 0.5, 10)
        records = smoothcert.certify_dataset(smoothed, mini, n=500, indices=range(0, 1000, 20))
        radii.append(average_certified_radius([r.radius for r in records], [r.correct for r in records]))
    untrained, trained = radii
    assert trained > untrained + 0.4, radii
