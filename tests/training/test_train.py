"""`smoothcert.train`: networks and data that are not the package's, resumed, certified and reported."""

import json
import multiprocessing
import random
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import own_networks
import pytest
import torch
from launching import environment
from own_networks import CASES, ConvNet, Mlp, clouds, shapes
from safetensors.torch import load_file, save_file
from torch import nn

import smoothcert
from smoothcert import dataset_names, model_names
from smoothcert.cli import main
from smoothcert.distributed.ranks import Ranks
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.methods import METHODS
from smoothcert.runtime.deadline import OutOfTimeError
from smoothcert.training import run_data, streaming
from smoothcert.training.run_folder import RunFolder
from smoothcert.training.sampling import split_validation

PLUGIN = """
import smoothcert
from own_networks import ConvNet, Mine, Mlp, clouds, shapes, transformers_resnet

smoothcert.register_model("conv-net", ConvNet)
smoothcert.register_model("mlp", Mlp)
smoothcert.register_model("transformers-resnet", transformers_resnet)
smoothcert.register_dataset("shapes", shapes)
smoothcert.register_dataset("clouds", clouds)
smoothcert.register_method(Mine)
"""
TRAINED_BY = ["gaussian", "consistency", "smoothadv", "catrs"]
PACKAGES = Path(__file__).parents[2] / ".cache/examples"
TRANSFORMERS = pytest.param("transformers_resnet", marks=pytest.mark.slow)


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Return the flags that load the plugin. What it registers is forgotten after the test."""
    path = tmp_path / "own_plugin.py"
    path.write_text(PLUGIN)
    monkeypatch.setattr(sys, "path", [*sys.path])
    kept = [(registry, {**registry}) for registry in (model_names.REGISTERED, dataset_names.REGISTERED, METHODS)]
    yield ["--plugin", str(path)]
    for registry, before in kept:
        registry.clear()
        registry.update(before)
    sys.modules.pop("own_plugin", None)


@pytest.fixture(autouse=True)
def transformers(request, monkeypatch):
    """For slow tests, put the packages of `examples/requirements.txt`, which `make test-slow` installs, on the path."""
    if request.node.get_closest_marker("slow"):
        if not (PACKAGES / "transformers").is_dir():
            pytest.skip("`make test-slow` installs transformers")
        monkeypatch.syspath_prepend(PACKAGES)


class Lazy(torch.utils.data.Dataset):
    """A dataset with an attribute `targets`, whose inputs are read on demand."""

    def __init__(self, inputs, targets):
        self.inputs, self.targets = inputs, targets

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.inputs[index], int(self.targets[index])


def launch(case, method, runs, **options):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["smoothcert.training.train", "safetensors.torch", "own_networks"])
    process = context.Process(target=own_networks.child, args=(case, method, runs, options))
    process.start()
    return process


def same(first, second):
    a, b = load_file(first), load_file(second)
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("method", TRAINED_BY)
@pytest.mark.parametrize("case", ["ConvNet", "Mlp", TRANSFORMERS])
def test_own_networks_learn_by_every_kind_of_method(case, method, tmp_path):
    checkpoint = own_networks.train(case, method, tmp_path, epochs=30, learning_rate=0.02)
    assert checkpoint.model.architecture == case
    folder = RunFolder(tmp_path / f"{case}-{method}-0.25")
    last = folder.read_metrics()[-1]
    assert {"loss", "test_accuracy", "validation_accuracy", "learning_rate", "seconds"} < last.keys()
    assert last["test_accuracy"] > 60, "chance is 33 %"
    assert case in folder.card.read_text()
    test = torch.utils.data.TensorDataset(*CASES[case][1]("test"))
    smoothed = smoothcert.SmoothedClassifier(checkpoint.model, sigma=0.25)
    records = smoothcert.certify_dataset(smoothed, test, tmp_path / "c.tsv", n=100, indices=range(0, 96, 8))
    assert smoothcert.metrics.average_certified_radius(records) > 0.05


@pytest.mark.parametrize(
    ("case", "optimizer"),
    [
        ("ConvNet", "sgd"),
        ("ConvNet", "adamw"),
        ("TrackingMlp", "adamw"),
        pytest.param("transformers_resnet", "adamw", marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_is_resumed_to_the_same_weights(case, optimizer, tmp_path):
    """Dropout, moments of AdamW, buffers that are not saved in checkpoints, tied weights."""
    options = {"epochs": 40, "optimizer": optimizer, "name": "run"}
    reference = launch(case, "consistency", tmp_path / "whole", **options)
    broken, generator, kills = RunFolder(tmp_path / "broken" / "run"), random.Random(case), 0
    while not broken.finished:
        before = broken.state.stat().st_mtime_ns if broken.state.exists() else 0
        process = launch(case, "consistency", tmp_path / "broken", **options)
        while process.is_alive() and (broken.state.stat().st_mtime_ns if broken.state.exists() else 0) == before:
            time.sleep(0.001)
        time.sleep(generator.uniform(0, 0.05))
        if process.is_alive() and kills < 3:
            process.kill()
            kills += 1
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
    reference.join()
    whole = RunFolder(tmp_path / "whole" / "run")
    assert kills >= 2
    assert same(broken.model, whole.model)
    rows = [[{**row, "seconds": 0} for row in folder.read_metrics()] for folder in (broken, whole)]
    assert rows[0] == rows[1]


def test_random_layers_draw_by_seed_and_step(tmp_path):
    """The network's dropout does not depend on the generator of the process, and leaves it as it was."""
    torch.manual_seed(1)
    own_networks.train("ConvNet", "gaussian", tmp_path / "a", epochs=2)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    own_networks.train("ConvNet", "gaussian", tmp_path / "b", epochs=2)
    assert torch.equal(before, torch.get_rng_state())
    name = "ConvNet-gaussian-0.25/model.safetensors"
    assert same(tmp_path / "a" / name, tmp_path / "b" / name)


def test_a_recipe_and_train_are_the_same_run(mini, tmp_path):
    config = smoothcert.load_recipe("mnist-mini-gaussian-1.00", name="run", epochs=1, method="consistency")
    smoothcert.train_run(config, tmp_path / "recipe")
    train = {"learning_rate": config.learning_rate, "schedule": config.schedule, "lr_step": config.lr_step}
    train |= {"weight_decay": config.weight_decay, "batch": config.batch, "name": "run", "lr_drops": config.lr_drops}
    trained = smoothcert.train(
        "lenet", "mnist-mini", sigma=config.sigma, method="consistency", epochs=1, runs=tmp_path / "train", **train
    )
    assert trained.model.architecture == "lenet"
    assert same(*(tmp_path / place / "run" / "model.safetensors" for place in ("recipe", "train")))


def test_modules_are_copied_and_start_from_their_weights(tmp_path):
    module = ConvNet()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    trained = smoothcert.train(module, shapes(), sigma=0.25, epochs=1, learning_rate=1e-12, runs=tmp_path)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    weight = trained.model.network.head.weight
    torch.testing.assert_close(weight, module.head.weight)
    assert weight is not module.head.weight


def test_fine_tuning_starts_from_given_weights(mini, tmp_path):
    test = mini[:100]
    tuned = smoothcert.train(
        "lenet", mini[:256], test_data=test, sigma=0.25, init="mnist-catrs-0.25", epochs=1, learning_rate=1e-4,
        runs=tmp_path, name="tuned",
    )  # fmt: skip
    assert RunFolder(tmp_path / "tuned").read_metrics()[-1]["test_accuracy"] > 95, "not trained from scratch"
    assert tuned.about["name"] == "tuned"
    smoothed = smoothcert.SmoothedClassifier(tuned.model, sigma=0.25)
    records = smoothcert.certify_dataset(smoothed, test, tmp_path / "c.tsv", n=100, indices=range(0, 100, 10))
    assert smoothcert.metrics.average_certified_radius(records) > 0.2
    first = own_networks.train("ConvNet", "gaussian", tmp_path, name="first")
    torch.save({"state_dict": first.model.network.state_dict()}, tmp_path / "weights.pt")
    save_file(first.model.network.state_dict(), tmp_path / "weights.safetensors")
    for source in (tmp_path / "first", tmp_path / "weights.pt", tmp_path / "weights.safetensors"):
        name = f"from-{source.suffix[1:] or 'run'}"
        again = own_networks.train("ConvNet", "smoothadv", tmp_path, init=source, learning_rate=1e-12, name=name)
        torch.testing.assert_close(again.model.network.head.weight, first.model.network.head.weight)
    with pytest.raises(SmoothcertError, match="does not match Mlp: .* have another shape: features.0.weight"):
        own_networks.train("Mlp", "gaussian", tmp_path, init=tmp_path / "first")
    with pytest.raises(SmoothcertError, match="Expected `init` to be the folder of a finished run"):
        own_networks.train("Mlp", "gaussian", tmp_path, init="nowhere", name="nowhere")
    with pytest.raises(SmoothcertError, match=r"but got mnist-catrs-0.2; did you mean 'mnist-catrs-0.25'\?"):
        own_networks.train("Mlp", "gaussian", tmp_path, init="mnist-catrs-0.2", name="nowhere")


@pytest.mark.parametrize("method", ["consistency", "smoothmix", "macer"])
def test_a_bundled_model_is_fine_tuned_and_resumed(method, mini, tmp_path):
    options = {"sigma": 0.25, "method": method, "init": "mnist-catrs-0.25", "epochs": 2, "batch": 64, "name": "run"}
    options |= {"options": {"num_noises": 2}, "learning_rate": 1e-3, "schedule": "one-cycle"}
    smoothcert.train("lenet", mini[:256], runs=tmp_path / "whole", **options)
    with pytest.raises(_StopError):
        smoothcert.train("lenet", mini[:256], runs=tmp_path / "broken", on_metrics=_stop, **options)
    smoothcert.train("lenet", mini[:256], runs=tmp_path / "broken", **options)
    assert same(*(tmp_path / place / "run" / "model.safetensors" for place in ("whole", "broken")))


class _StopError(Exception):
    pass


def _stop(metrics):
    raise _StopError


def test_metrics_are_passed_on_after_every_epoch(tmp_path):
    seen = []
    own_networks.train("Mlp", "catrs", tmp_path, on_metrics=seen.append, name="run", epochs=3)
    assert seen == RunFolder(tmp_path / "run").read_metrics()
    assert [row["epoch"] for row in seen] == [0, 1, 2], "not those of the teacher"


def test_the_time_limit_stops_and_the_same_call_goes_on(tmp_path):
    with pytest.raises(OutOfTimeError, match="the state is saved"):
        own_networks.train("Mlp", "gaussian", tmp_path, name="run", epochs=200, time_limit=1e-3)
    own_networks.train("Mlp", "gaussian", tmp_path, name="run", epochs=200)
    assert len(RunFolder(tmp_path / "run").read_metrics()) == 200


def test_other_data_or_settings_do_not_continue_a_run(tmp_path):
    own_networks.train("Mlp", "gaussian", tmp_path, name="run")
    again = own_networks.train("Mlp", "gaussian", tmp_path, name="run")
    assert again.sha256 == smoothcert.load_checkpoint(tmp_path / "run", model=Mlp).sha256
    inputs, labels = clouds()
    with pytest.raises(UsageError, match=r"different configuration \(different dataset, validation"):
        smoothcert.train(
            Mlp, (inputs + 1e-3, labels), sigma=0.25, runs=tmp_path, name="run", epochs=6, batch=32,
            optimizer="adamw", learning_rate=0.01, warmup_epochs=1.0, label_samples=20,
        )  # fmt: skip


def act(activation, width=8):
    return lambda: nn.Sequential(nn.Linear(6, width), activation(), nn.Linear(width, 3))


@pytest.mark.parametrize("finished", [True, False])
def test_another_network_does_not_continue_a_run(finished, tmp_path):
    """Also if all of its weights have the same shapes."""
    options = {"sigma": 0.25, "epochs": 2, "runs": tmp_path, "name": "act"}
    with nullcontext() if finished else pytest.raises(_StopError):
        smoothcert.train(act(nn.ReLU), clouds(), on_metrics=None if finished else _stop, **options)
    with pytest.raises(UsageError, match=r"act contains a run .*\(different network\); choose another `name`"):
        smoothcert.train(act(nn.Tanh), clouds(), **options)
    smoothcert.train(act(nn.ReLU), clouds(), **options)


def test_networks_of_the_same_name_have_their_own_teachers(tmp_path):
    options = {"sigma": 0.25, "epochs": 1, "runs": tmp_path, "method": "catrs", "label_samples": 5}
    for width in (8, 16):
        smoothcert.train(act(nn.ReLU, width), clouds(), name=f"width-{width}", **options)
    smoothcert.train(act(nn.ReLU, 8), clouds(), name="another-seed", seed=1, **options)
    assert len(list(tmp_path.glob("*-teacher-*"))) == 2


def test_another_module_does_not_continue_a_run(tmp_path):
    module, options = ConvNet(), {"sigma": 0.25, "epochs": 1, "runs": tmp_path, "name": "run"}
    for _ in range(2):
        smoothcert.train(module, shapes(), **options)
    for other in (ConvNet(), ConvNet):
        with pytest.raises(UsageError, match=r"\(different initial_weights\); choose another `name`"):
            smoothcert.train(other, shapes(), **options)


@pytest.mark.parametrize("own", [True, False])
def test_other_contents_of_init_do_not_continue_a_run(own, tmp_path):
    model = ConvNet if own else "cifar_resnet8"
    config, weights = tmp_path / "run" / "config.toml", tmp_path / "weights.pt"
    first, second = (ConvNet() if own else smoothcert.create_model(model, 3, in_channels=1) for _ in range(2))
    torch.save(first.state_dict(), weights)
    options = {"sigma": 0.25, "epochs": 1, "batch": 96, "runs": tmp_path, "name": "run", "init": weights}
    smoothcert.train(model, shapes(), **options)
    torch.save(second.state_dict(), weights)
    with pytest.raises(UsageError, match=r"\(different initial_weights\); choose another `name`"):
        smoothcert.train(model, shapes(), **options)
    weights.unlink()
    smoothcert.train(model, shapes(), **options)  # there is nothing to compare with
    lines = config.read_text().splitlines(keepends=True)
    config.write_text("".join(line for line in lines if "initial_weights" not in line))  # as earlier versions wrote it
    torch.save(second.state_dict(), weights)
    smoothcert.train(model, shapes(), **options)


def test_ranks_compare_the_training_data_itself(monkeypatch):
    """A plugin may draw its data at random, and differently in each process."""
    seen = []

    class Recording(Ranks):
        def require_same_on_all_ranks(self, facts):
            seen.append(facts)

    monkeypatch.setattr(run_data, "current_ranks", Recording)
    train, _ = run_data.RunImages(None).of(smoothcert.TrainConfig(dataset="mnist-mini"))
    assert seen[0]["training data"] == train.fingerprint


def test_teachers_of_other_data_are_not_used(tmp_path):
    own_networks.train("Mlp", "catrs", tmp_path, name="one")
    own_networks.train("Mlp", "catrs", tmp_path, name="two", seed=1)
    inputs, labels = clouds()
    smoothcert.train(Mlp, (inputs + 1, labels), sigma=0.25, method="catrs", runs=tmp_path, label_samples=5, epochs=2)
    assert len(list(tmp_path.glob("*-teacher-*"))) == 2, "runs on the same data share a teacher"


def test_checkpoints_are_loaded_with_the_network_that_they_were_made_from(tmp_path):
    own_networks.train("ConvNet", "gaussian", tmp_path, name="run")
    path = tmp_path / "run"
    loaded = smoothcert.load_checkpoint(path, model=ConvNet)
    x = torch.rand(4, 1, 8, 8)
    network = ConvNet()
    network.load_state_dict(load_file(path / "model.safetensors"))
    assert torch.equal(loaded.model.eval()(x), network.eval()(x))
    assert torch.equal(smoothcert.load_checkpoint(path, model=ConvNet()).model.eval()(x), network(x))
    with pytest.raises(
        UsageError, match=r"your own network ConvNet; set `model` to the function .* under the name 'ConvNet'\.$"
    ):
        smoothcert.load_checkpoint(path)
    with pytest.raises(UsageError, match="Mlp cannot score inputs of shape"):
        smoothcert.load_checkpoint(path, model=Mlp)
    smoothcert.save_checkpoint(tmp_path / "lenet.safetensors", smoothcert.create_model("lenet"))
    with pytest.raises(UsageError, match="contains the built-in network lenet; omit `model`"):
        smoothcert.load_checkpoint(tmp_path / "lenet.safetensors", model=ConvNet)
    (tmp_path / "weights.pt").touch()
    with pytest.raises(UsageError, match="load other weights with your network's `load_state_dict`"):
        smoothcert.load_checkpoint(tmp_path / "weights.pt", model=ConvNet)
    with pytest.raises(UsageError, match="the published code supports no others"):
        smoothcert.export_checkpoint(loaded, tmp_path / "out.pth.tar")


class Placed(Mlp):
    """An MLP that accepts inputs on the CPU only once it was moved there, like one that was created on a GPU."""

    moved = False

    def _apply(self, *args, **options):
        self.moved = True
        return super()._apply(*args, **options)

    def forward(self, x):
        if not self.moved:
            raise RuntimeError("Expected all tensors to be on the same device")
        return super().forward(x)


def test_trained_networks_know_the_shape_of_their_inputs(tmp_path):
    """Audio of shape [1, T] would otherwise be taken for a batch, and two recordings for an image."""
    inputs, labels = torch.randn(24, 1, 32), torch.arange(24) % 2

    def audio():
        return nn.Sequential(nn.Conv1d(1, 4, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(56, 2))

    trained = smoothcert.train(audio, (inputs, labels), sigma=0.25, epochs=1, runs=tmp_path)
    smoothed = smoothcert.SmoothedClassifier(trained.model, sigma=0.25)
    assert isinstance(smoothed.predict(inputs[0], n=20), int)
    assert len(smoothed.predict(inputs[:2], n=20)) == 2
    with pytest.raises(UsageError, match=r"inputs of shape \[1, 32\], but got \[1, 16\]"):
        smoothed.predict(inputs[0, :, :16], n=20)
    with pytest.raises(UsageError, match=r"batch of inputs of shape \[1, 32\], but got \[2, 1, 16\]"):
        smoothcert.smoothed_gradient(smoothed, inputs[:2, :, :16], labels[:2])


def test_modules_may_be_on_another_device(tmp_path):
    module = Placed()
    smoothcert.train(module, clouds(), sigma=0.25, epochs=1, runs=tmp_path, name="run")
    smoothcert.load_checkpoint(tmp_path / "run", model=module)
    assert not module.moved, "a copy is moved"


def test_networks_may_have_more_scores_than_the_data_has_classes(tmp_path):
    """The factory gets the number of classes of the data again when a run, or the teacher of one, is loaded."""

    def network(num_classes):
        return nn.Linear(6, num_classes + 2)

    trained = smoothcert.train(network, clouds(), sigma=0.25, method="catrs", label_samples=5, epochs=1, runs=tmp_path)
    loaded = smoothcert.load_checkpoint(tmp_path / "network-catrs-0.25", model=network)
    for model in (trained.model, loaded.model):
        assert (model.num_classes, model.data_classes, model.network.out_features) == (5, 3, 5)
    smoothcert.save_checkpoint(tmp_path / "copy.safetensors", loaded.model)
    assert smoothcert.load_checkpoint(tmp_path / "copy.safetensors", model=network).model.data_classes == 3


@pytest.mark.parametrize("value", ["", "0", "2.5", "9" * 12])
def test_damaged_numbers_of_classes_are_refused(value, tmp_path):
    header = {"format": "smoothcert-1", "architecture": "Mlp", "num_classes": "3", "input_shape": "[6]"}
    save_file(Mlp().norm.state_dict(), tmp_path / "m.safetensors", header | ({"data_classes": value} if value else {}))
    with pytest.raises(SmoothcertError, match="`data_classes`"):
        smoothcert.load_checkpoint(tmp_path / "m.safetensors", model=Mlp)


def test_the_validation_split_is_never_trained_on(tmp_path):
    kept, aside = split_validation(96, 0.25)
    assert sorted([*kept.tolist(), *aside.tolist()]) == list(range(96))
    assert len(aside) == 24
    assert [len(split_validation(100, part / 100)[1]) for part in range(100)] == list(range(100))
    assert [len(part) for part in split_validation(96, 0.999)] == [1, 95]
    inputs, labels = clouds()
    labels[aside] = 0  # whoever trains on these cannot be right on the others
    options = {"sigma": 0.1, "validation": 0.25, "epochs": 30, "batch": 24, "optimizer": "adamw", "learning_rate": 0.01}
    for name, sampling in {"shuffled": {}, "drawn": {"sampling": "replacement", "sampling_epoch": 2}}.items():
        smoothcert.train(Mlp, (inputs, labels), runs=tmp_path, name=name, **options, **sampling)
        last = RunFolder(tmp_path / name).read_metrics()[-1]
        assert last["validation_accuracy"] < 60
        assert "test_accuracy" not in last


def test_networks_of_other_libraries_return_objects_with_logits(tmp_path):
    class Output:
        def __init__(self, logits):
            self.logits = logits

    class Wrapped(Mlp):
        def forward(self, x):
            return Output(super().forward(x))

    trained = smoothcert.train(Wrapped, clouds(), sigma=0.25, epochs=1, runs=tmp_path)
    assert trained.model(torch.zeros(2, 6)).shape == (2, 3)


def test_lazy_layers_and_functions_of_the_shape(tmp_path):
    def network(num_classes, input_shape):
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(sum(input_shape)), nn.GELU(), nn.LazyLinear(num_classes))

    files = [smoothcert.train(network, shapes(), sigma=0.5, epochs=1, runs=tmp_path / name) for name in "ab"]
    assert files[0].sha256 == files[1].sha256
    assert files[0].model.network[1].out_features == 17


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (lambda: nn.Flatten(), shapes(), "Expected a model with parameters to train, but Flatten has none"),
        (lambda: 3, shapes(), "to return an `nn.Module`, but got an int"),
        (lambda: 1 / 0, shapes(), r"The model cannot be created \(division by zero\)"),
        (lambda **names: names["num_classes"], shapes(), "only as parameters with these names"),
        (3, shapes(), "Expected `model` to be a module or a function that creates one, but got an int"),
        ("nonet", shapes(), "Unknown model 'nonet'"),
        ("nets/own.pt", shapes(), "Unknown model 'nets/own.pt'"),
        (Mlp, (clouds()[0], 0 * clouds()[1]), "Expected training data with at least two classes, but arrays has one"),
        (ConvNet, Lazy(shapes()[0].float(), shapes()[1]), r"Expected images in \[0, 1\], the range that `sigma`"),
        ("lenet", clouds(), r"inputs of shape \[channels, height, width\] for lenet, but got \[6\]"),
        (Mlp, shapes(), r"Mlp cannot score inputs of shape \[1, 8, 8\]"),
        (lambda: nn.Linear(6, 2), clouds(), "at least 3 scores per input, one per class, but got shape"),
        (Mlp, (clouds()[0], clouds()[1][:5]), "Expected one label per input, but got 96 inputs and 5 labels"),
        (Mlp, torch.utils.data.TensorDataset(clouds()[0]), r"pairs \(inputs, labels\), but got a tuple of length 1"),
        (ConvNet, (shapes()[0].float(), shapes()[1]), r"Expected images in \[0, 1\], the range that `sigma` refers to"),
        (Mlp, (clouds()[0] / 0, clouds()[1]), "contains NaN or infinite values"),
        (Mlp, (clouds()[0], clouds()[1] - 1), "expected labels >= 0, but got label -1"),
        (Mlp, clouds()[0], "Expected `data`"),
    ],
)
def test_wrong_models_and_data_get_one_sentence(model, data, message, tmp_path):
    with pytest.raises(SmoothcertError, match=message) as caught:
        smoothcert.train(model, data, sigma=0.25, epochs=1, runs=tmp_path)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("*/model.safetensors"))


@pytest.mark.parametrize(
    ("factor", "message"),
    [(255.0, r"Expected images in \[0, 1\], .* but they span \[0, 2"), (float("nan"), "wild contains NaN or infinite")],
)
def test_named_data_is_checked_as_well(factor, message, plugin, tmp_path):
    smoothcert.register_dataset("wild", lambda split: (shapes(split)[0] / 255 * factor, shapes(split)[1]))
    with pytest.raises(UsageError, match=message):
        smoothcert.train(ConvNet, "wild", sigma=0.25, epochs=1, runs=tmp_path)
    with pytest.raises(UsageError, match=message):
        smoothcert.train_run(smoothcert.TrainConfig(dataset="wild", epochs=1), tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "Expected `epochs` to be at least 1"),
        ({"optimizer": "adam"}, "Expected `optimizer` to be one of sgd, adamw, but got 'adam'"),
        ({"optimizer": "adamw", "momentum": 0.5}, "Expected `momentum` to be 0.9 with `optimizer='adamw'`"),
        ({"schedule": "one-cycle", "warmup_epochs": 1.0}, "which has its own warm-up"),
        ({"warmup_epochs": 6.0}, r"Expected `warmup_epochs` to be below `epochs` \(6\), but got 6"),
        ({"final_drop_epoch": -1}, "Expected `final_drop_epoch` to be >= 0, but got -1"),
        ({"validation": 0.001}, "large enough for at least one of 96 images, but got 0.001"),
        ({"lr_stepp": 3}, "Unknown argument 'lr_stepp'; did you mean 'lr_step'"),
        ({"test_dat": clouds()}, "Unknown argument 'test_dat'; did you mean 'test_data'"),
        ({"compil": True}, "Unknown argument 'compil'; did you mean 'compile'"),
        ({"lr": 0.1}, r"Unknown argument 'lr'; did you mean 'learning_rate'\?"),
        ({"num_noise": 4}, r"did you mean 'num_noises'\?.* Options of the method belong in `options={...}`"),
        ({"num_noises": 4}, r"Expected `num_noises`, an option of gaussian, in `options={...}`"),
        ({"dataset": "mnist"}, "Expected no `dataset`, because it follows from `train_data`"),
        ({"architecture": "lenet"}, "Expected no `architecture`, because it follows from `model`"),
        ({"network": "0"}, "Unknown argument 'network'"),
        ({"sigma": "0.25"}, "Expected `sigma` to be of type float, but got '0.25'"),
        ({"sigma": None}, "Expected `sigma` to be of type float, but got None"),
        ({"init": {"weight": torch.zeros(1)}}, "Expected `init` to be of type str or Path or None"),
        ({"on_metrics": 3}, "Expected `on_metrics` to be of type Callable or None, but got 3"),
        ({"workers": -1}, "Expected `workers` to be a whole number >= 0, but got -1"),
        ({"workers": "2"}, "Expected `workers` to be a whole number >= 0, but got '2'"),
        ({"compile": "yes"}, "Expected `compile` to be of type bool or None"),
        ({"augmentation": "crop-flip"}, r"Expected `augmentation` to be 'none' for inputs of shape \[6\]"),
        ({"test_data": (clouds()[0], clouds()[1] + 1)}, "Expected test data with labels below 3, .* but got label 3"),
        ({"test_data": shapes()}, "Expected the inputs of `test_data` to be shaped like those of `train_data`"),
    ],
)
def test_wrong_settings_get_one_sentence(settings, message, tmp_path):
    with pytest.raises(SmoothcertError, match=message):
        smoothcert.train(Mlp, clouds(), **{"sigma": 0.25, "epochs": 6, "runs": tmp_path, **settings})


@pytest.mark.parametrize("method", ["gaussian", "catrs", "stability"])
def test_batch_norm_on_a_single_input_is_refused_before_the_first_step(method, tmp_path):
    """The last mini-batch of 97 inputs has one input; for CAT-RS, only that of its teacher."""
    options = {"sigma": 0.25, "epochs": 1, "batch": 32, "runs": tmp_path, "method": method, "label_samples": 5}
    message = "Expected `batch` to leave at least two inputs per process in every step, because Mlp uses BatchNorm"
    with pytest.raises(UsageError, match=f"{message}, but got 32, which leaves only one in some steps"):
        smoothcert.train(Mlp, clouds(count=97), **options)
    assert not list(tmp_path.glob("*/metrics.jsonl"))
    smoothcert.train(ConvNet, shapes(count=97), **options)  # it has several values per channel and input


def test_another_error_on_a_single_input_is_not_taken_for_batch_norm(tmp_path):
    class Picky(Mlp):
        def forward(self, x):
            if len(x) == 1:
                raise ValueError("Expected more friends.")
            return super().forward(x)

    with pytest.raises(ValueError, match="Expected more friends"):
        smoothcert.train(Picky, clouds(count=97), sigma=0.25, epochs=1, batch=32, runs=tmp_path)


def test_several_noise_samples_are_enough_for_batch_norm(tmp_path):
    options = {"sigma": 0.25, "epochs": 1, "batch": 32, "steps": "whole", "method": "consistency"}
    smoothcert.train(Mlp, clouds(count=97), runs=tmp_path, **options)


def test_settings_may_be_numbers_of_numpy_and_paths(tmp_path):
    options = {
        "sigma": np.float32(0.25),
        "epochs": np.int64(1),
        "batch": np.int32(48),
        "seed": np.uint8(3),
        "init": None,
    }
    options |= {"method": "consistency", "options": {"num_noises": np.int64(2), "weight": np.float64(5)}}
    smoothcert.train(Mlp, clouds(), runs=tmp_path, validation=np.float64(0.25), **options)
    config = RunFolder(tmp_path / "Mlp-consistency-0.25").read_config()
    assert (config.sigma, config.epochs, config.batch, config.seed, config.validation) == (0.25, 1, 48, 3, 0.25)
    teacher = tmp_path / "Mlp-consistency-0.25"
    smoothcert.train(Mlp, clouds(), sigma=1, epochs=1, method="catrs", label_samples=5, teacher=teacher, runs=tmp_path)


def test_schedules():
    cosine = smoothcert.TrainConfig(epochs=10, learning_rate=1.0, schedule="cosine", warmup_epochs=2.0)
    rates = [cosine.learning_rate_at(i // 10, i / 100) for i in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[10] == pytest.approx(0.55)
    assert max(rates) == rates[20] == 1.0
    assert rates[60] == pytest.approx(0.5)
    assert rates[99] < 0.01
    step = smoothcert.TrainConfig(epochs=10, learning_rate=1.0, lr_step=5, lr_drops="on-time", warmup_epochs=1.0)
    assert [step.learning_rate_at(e, e / 10) for e in (0, 1, 4, 5)] == pytest.approx([0.1, 1.0, 1.0, 0.1])


@pytest.mark.parametrize(
    ("architecture", "dataset"),
    [
        ("conv-net", "shapes"),
        ("mlp", "clouds"),
        pytest.param("transformers-resnet", "shapes", marks=pytest.mark.slow),
    ],
)
def test_plugins_train_certify_and_report_on_the_command_line(
    architecture, dataset, plugin, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    base = ["train", *plugin, "--epochs", "3", "--batch", "32", "--sigma", "0.25", "--optimizer", "adamw"]
    base += ["--learning-rate", "0.01", "--label-samples", "10", "--architecture", architecture, "--dataset", dataset]
    for method in ("mine", "consistency", "catrs"):
        extra = ["--weight", "3"] if method == "mine" else []
        assert main([*base, "--method", method, "--name", method, *extra]) == 0, capsys.readouterr().err
        assert main(["certify", f"runs/{method}", *plugin, "--n", "50", "--skip", "12"]) == 0, capsys.readouterr().err
    capsys.readouterr()
    files = [str(path) for path in tmp_path.glob("runs/*/certify-*.tsv") if "counts" not in path.name]
    assert len(files) == 3
    assert main(["report", *files, "--json"]) == 0
    rows = json.dumps(json.loads(capsys.readouterr().out))
    for text in (f"CAT-RS, {architecture}", f"Consistency, {architecture}", f"mine, {architecture}", dataset):
        assert text in rows


def test_the_commands_of_the_documentation(tmp_path, plugin, monkeypatch, capsys):
    """The plugin of docs/own-network.md, in a file of its own, and the two commands below it."""
    page = (Path(__file__).parents[2] / "docs/own-network.md").read_text()
    code, commands = page.split("## On the command line: plugins")[1].split("```")[1:5:2]
    monkeypatch.chdir(tmp_path)
    mlp = page[page.index("import torch") : page.index("trained = ")]
    Path("mine.py").write_text(mlp + code.removeprefix("python\n"))
    train, certify = commands.removeprefix("sh\n").splitlines()
    for line, more in ((train, ["--epochs", "1"]), (certify, ["--n", "50", "--skip", "100"])):
        assert main([*line.split()[1:], *more]) == 0, capsys.readouterr().err
    assert "Consistency, mlp" in capsys.readouterr().out
    sys.modules.pop("mine", None)


@pytest.mark.filterwarnings("error")
def test_the_training_loop_of_the_documentation_prints_no_warning(capsys):
    page = (Path(__file__).parents[2] / "docs/own-network.md").read_text()
    data = page[page.index("import torch") : page.index("trained = ")]
    loop = page.split("## In your own training loop")[1].split("```")[1].removeprefix("python\n")
    torch.manual_seed(0)
    exec(data + loop, {})
    assert len(capsys.readouterr().out.splitlines()) == 4, "three epochs and a certificate"


def test_plugins_in_other_commands(plugin, capsys):
    assert main(["list", "models", *plugin]) == 0
    assert {"conv-net", "mlp"} < set(capsys.readouterr().out.split())
    assert main(["data", "show", "shapes", *plugin]) == 0
    capsys.readouterr()
    assert main(["data", "list", *plugin]) == 0
    assert "registered by a plugin" in capsys.readouterr().out
    assert main(["train", "--dry-run", *plugin, "--architecture", "mlp", "--dataset", "clouds", "--epochs", "1"]) == 0


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import nothing_of_this_name", "cannot be imported: ModuleNotFoundError: No module named"),
        ("def broken(:", "cannot be imported: SyntaxError"),
        ("import smoothcert\nsmoothcert.register_model('lenet', int)", "There is already a model 'lenet'"),
        (None, "Expected `--plugin` to name a Python file"),
    ],
)
def test_plugins_that_fail_get_one_sentence(code, message, tmp_path, capsys):
    path = tmp_path / f"failing_plugin_{abs(hash(code))}.py"
    if code is not None:
        path.write_text(code)
    assert main(["list", "models", "--plugin", str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_plugin_may_not_hide_another_module(tmp_path, capsys):
    (tmp_path / "json.py").write_text("")
    before = [*sys.path]
    assert main(["list", "models", "--plugin", str(tmp_path / "json.py")]) == 2
    assert "has the name of another module" in capsys.readouterr().err
    assert sys.path == before, "a process started later would import this json"


def test_installed_packages_are_plugins(tmp_path):
    """As an entry point of a package on the import path; a package that fails is skipped with a notice."""
    for name, code in {"good": "import smoothcert\nsmoothcert.register_model('theirs', dict)", "bad": "1 / 0"}.items():
        (tmp_path / f"{name}_plugin.py").write_text(code)
        about = tmp_path / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[smoothcert.plugins]\n{name} = {name}_plugin\n")
    env = environment()
    env["PYTHONPATH"] = f"{tmp_path}:{env.get('PYTHONPATH', '')}"
    command = [sys.executable, "-m", "smoothcert", "list", "models"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "theirs" in done.stdout.split()
    assert "The plugin bad (bad_plugin) is skipped: ZeroDivisionError: division by zero." in done.stderr


@pytest.mark.parametrize("workers", [0, 2])
def test_large_data_is_read_by_workers(workers, tmp_path, monkeypatch):
    """With the weights of data in memory."""
    options = {"sigma": 0.25, "epochs": 2, "batch": 32, "augmentation": "crop-flip", "name": "run"}
    smoothcert.train(ConvNet, shapes(), runs=tmp_path / "resident", **options)
    monkeypatch.setattr(streaming, "_MOST_RESIDENT", 0)
    options |= {"workers": workers, "runs": tmp_path / "streamed"}
    smoothcert.train(ConvNet, Lazy(*shapes()), **options)
    assert same(*(tmp_path / place / "run" / "model.safetensors" for place in ("resident", "streamed")))


def test_datasets_with_labels_are_read_on_demand(tmp_path):
    trained = smoothcert.train(
        ConvNet, Lazy(*shapes()), sigma=0.25, epochs=2, runs=tmp_path, augmentation="resized-crop-flip", method="catrs",
        label_samples=5, label_view="augmented",
    )  # fmt: skip
    assert trained.about["dataset"] == "Lazy"
    pixels, labels = shapes()
    floats = (np.asarray(pixels, np.float32) / 255, labels.numpy())
    options = {"sigma": 0.25, "epochs": 1, "augmentation": "crop-flip"}
    files = [smoothcert.train(ConvNet, data, runs=tmp_path / name, **options) for name, data in
             (("bytes", (pixels, labels)), ("floats", floats))]  # fmt: skip
    a, b = (file.model.state_dict() for file in files)
    torch.testing.assert_close(a, b)


def small(hidden):
    return lambda: nn.Sequential(nn.Linear(6, hidden), nn.ReLU(), nn.Linear(hidden, 3))


def test_the_teacher_of_another_registered_network(plugin, tmp_path):
    """It is built by its own name, also if the run's network is registered or passed."""
    for name, hidden in (("big", 8), ("small", 4)):
        smoothcert.register_model(name, small(hidden))
    options = {"sigma": 0.25, "epochs": 1, "runs": tmp_path}
    smoothcert.train("big", clouds(), name="teach", **options)
    options |= {"method": "catrs", "teacher": str(tmp_path / "teach"), "label_samples": 5}
    for model, name in (("small", "registered"), (small(5), "passed")):
        smoothcert.train(model, clouds(), name=name, **options)


@pytest.mark.parametrize("wrap", [nn.DataParallel, torch.compile, lambda net: torch.compile(nn.DataParallel(net))])
def test_wrapped_networks_are_trained_without_their_wrapper(wrap, tmp_path):
    options = {"sigma": 0.25, "epochs": 1, "runs": tmp_path}
    for name, model in (("module", wrap(Mlp())), ("function", lambda: wrap(Mlp()))):
        trained = smoothcert.train(model, clouds(), name=name, **options)
        assert isinstance(trained.model.network, Mlp)
        again = smoothcert.load_checkpoint(tmp_path / name, model=Mlp)
        assert again.model.architecture == ("Mlp" if name == "module" else "model")
    tuned = smoothcert.train(again.model, clouds(), name="tuned", **options)
    assert isinstance(tuned.model.network, Mlp), "not a UserModel in a UserModel"


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
def test_initial_weights_of_a_wrapped_network(prefix, tmp_path):
    source = Mlp()
    torch.save({prefix + key: value for key, value in source.state_dict().items()}, tmp_path / "weights.pt")
    options = {"init": tmp_path / "weights.pt", "epochs": 2, "learning_rate": 1e-12}
    trained = own_networks.train("Mlp", "gaussian", tmp_path, **options)
    torch.testing.assert_close(trained.model.network.head.weight, source.head.weight)
