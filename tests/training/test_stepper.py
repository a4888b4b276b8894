"""Training steps: compiled ones equal eager ones, and fall back to eager, with a notice, if need be."""

import copy
import dataclasses
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

import smoothcert
from smoothcert.distributed.ranks import Ranks
from smoothcert.errors import Notice
from smoothcert.methods import METHODS, create_method
from smoothcert.methods.base import StepOutput
from smoothcert.methods.gaussian import Gaussian
from smoothcert.smoothing.precision import numerics
from smoothcert.training import compiled_loss
from smoothcert.training.batches import ResidentData
from smoothcert.training.graph_stepper import GraphStepper
from smoothcert.training.step_draws import StepDraws
from smoothcert.training.stepper import Stepper

OPTIONS = {"num_noises": 2, "attack_steps": 2, "weight": 0.5, "attack_epoch": 5}


def options(name):
    return {key: value for key, value in OPTIONS.items() if key in METHODS[name].__dataclass_fields__}


def train(method, *, compiled, left=2, steps=3, size=8, graphs=False, network=lambda: smoothcert.create_model("lenet")):
    """Take a few steps in different epochs, and return weights, gradients and watched sums.

    `left` is the number of compiled variants of the step that are left in the end.
    """
    torch.manual_seed(0)
    images = torch.randint(256, (64, 1, 28, 28), dtype=torch.uint8)
    soft = torch.softmax(torch.randn(64, 10), dim=1)
    data = ResidentData(images, torch.randint(10, (64,)), soft, "crop-flip")
    model = network().train()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    kind = GraphStepper if graphs else Stepper
    stepper = kind(model, method, optimizer, data, seed=3, precision="fp32")
    if compiled:
        stepper.compile(size)
    for step in range(steps):
        stepper.set_position(5 * step, step, 0.05)
        stepper.take_step((torch.arange(size * step, size * (step + 1)),), size)
    variants = stepper.compiled_loss.variants if stepper.compiled_loss else []
    assert len(variants) == (left if compiled else 0), "it fell back"
    gradients = {f"gradient of {name}": parameter.grad for name, parameter in model.named_parameters()}
    return {**model.state_dict(), **gradients, "sums": stepper.sums}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "layers"), [*((name, 64) for name in METHODS), ("gaussian", 0), ("smoothmix", 0), ("catrs", 0)]
)
def test_compiled_steps_equal_eager_ones(monkeypatch, name, layers):
    monkeypatch.setattr(compiled_loss, "_MOST_LAYERS", layers)  # beyond which the network alone is compiled
    method = create_method(name, 0.25, options(name))
    eager, compiled = (train(method, compiled=compiled, left=2 if layers else 1) for compiled in (False, True))
    torch._dynamo.reset()
    assert_close(compiled, eager)


def assert_close(actual, expected):
    assert actual.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(actual[key], value, rtol=1e-5, atol=1e-5, msg=lambda text, key=key: f"{key} {text}")


@pytest.mark.parametrize("name", METHODS)
def test_losses_in_bfloat16_are_computed_in_float32(name):
    """Autocast casts fewer functions back on a CPU than on a GPU; losses are computed in float32 on both."""
    torch.manual_seed(0)
    model, x, y = smoothcert.create_model("cifar_resnet8"), torch.rand(8, 3, 8, 8), torch.randint(10, (8,))
    method, soft = create_method(name, 0.25, options(name)), torch.softmax(torch.randn(8, 10), dim=1)
    with numerics("bf16", torch.device("cpu")):
        assert model.network(x).dtype == torch.bfloat16
        output = method.step(model, x, y, draws=StepDraws(0, 0), epoch=torch.tensor(5.0), soft=soft)
    values = [output.loss, *(part for part in output.parts.values() if part.is_floating_point())]
    assert {value.dtype for value in values} == {torch.float32}


class Counting(torch.nn.Sequential):
    """A network that counts its passes."""

    def __init__(self):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(784, 10))
        self.passes = 0

    def forward(self, x):
        self.passes += 1
        return super().forward(x)


def test_passes_of_an_attack_are_absent_before_it_begins():
    counts = []
    for begins in (0, 10, 11):
        networks = []
        method = create_method("first-failure", 0.25, {"attack_steps": 3, "attack_epoch": begins})
        train(method, compiled=False, network=lambda seen=networks: seen.append(Counting()) or seen[0])
        counts.append(networks[0].passes)
    assert counts == [3 * 4, 2 * 1 + 4, 3 * 1], "steps in epochs 0, 5 and 10"


def test_a_phase_is_the_method_alone_and_captured_on_its_own(monkeypatch):
    """Captured steps, here replayed without a GPU, are never those of another phase."""

    class Replay:
        def __init__(self, stepper, places, images):
            self.stepper, self.places, self.images, self.phase = stepper, places, images, stepper._phase

        def replay(self):
            assert self.stepper._phase == self.phase
            Stepper.take_step(self.stepper, self.places, self.images)

    def capture(stepper, inputs, images):
        places = tuple(value.clone() for value in inputs)
        return places, Replay(stepper, places, images)

    monkeypatch.setattr(GraphStepper, "_capture", capture)
    method = create_method("first-failure", 0.25, {"attack_steps": 2, "attack_epoch": 20})
    plain, graphs = (train(method, compiled=False, steps=8, graphs=graphs) for graphs in (False, True))
    assert all(torch.equal(graphs[key], plain[key]) for key in plain)
    assert plain["sums"].shape == (2,), "the attack's share of failures is watched from its first epoch on"
    never = create_method("first-failure", 0.25, {"attack_steps": 2, "attack_epoch": 50})
    without = create_method("gaussian", 0.25, {"num_noises": 4})
    early, gaussian = (train(method, compiled=False) for method in (never, without))
    assert all(torch.equal(early[key], gaussian[key]) for key in gaussian)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Branching(Gaussian):
    """Gaussian training that branches on a hyperparameter."""

    def step(self, model, x, y, *, draws, epoch, soft=None):
        output = super().step(model, x, y, draws=draws, epoch=epoch, soft=soft)
        return StepOutput(output.loss / 2 if self.sigma > 0.3 else output.loss)


@pytest.mark.slow
def test_runs_that_differ_in_real_numbers_are_compiled_once():
    """Unless they branch on these numbers."""
    torch._dynamo.reset()
    for kind, left, graphs in ((Gaussian, 2, 1), (Branching, 1, 2)):
        before = counters["stats"]["unique_graphs"]
        for sigma in (0.25, 0.5):
            method = kind(sigma=sigma)
            # One step only: rounding can change which input of a pool is the maximum, and later steps amplify that.
            assert_close(train(method, compiled=True, left=left, steps=1), train(method, compiled=False, steps=1))
        assert counters["stats"]["unique_graphs"] - before == graphs
    torch._dynamo.reset()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limited(Gaussian):
    """Gaussian training with an optional option."""

    limit: float = None
    steps: int = 5


def test_only_real_hyperparameters_become_tensors():
    method = compiled_loss._with_tensors(Limited(sigma=1), torch.zeros(1, dtype=torch.float64))
    torch.testing.assert_close(method.sigma, torch.tensor(1.0, dtype=torch.float64))
    assert (method.limit, method.steps) == (None, 5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Synchronizing(Gaussian):
    """Gaussian training that reads a value back to the host."""

    def step(self, model, x, y, *, draws, epoch, soft=None):
        output = super().step(model, x, y, draws=draws, epoch=epoch, soft=soft)
        scale = 1.0 if output.loss.item() > 0 else 2.0
        return StepOutput(scale * output.loss)


def test_a_method_that_synchronizes_runs_uncompiled_with_the_same_numbers():
    method = Synchronizing(sigma=0.25)
    expected = train(method, compiled=False)
    with pytest.warns(UserWarning, match="Steps run uncompiled: "):
        actual = train(method, compiled=True, left=0)
    assert all(torch.equal(actual[key], expected[key]) for key in expected)


def test_steps_that_cannot_be_captured_run_one_by_one_with_the_same_numbers(monkeypatch):
    def refuse(*_):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(GraphStepper, "_capture", refuse)
    method = Gaussian(sigma=0.25)
    expected = train(method, compiled=False, steps=7)
    with pytest.warns(Notice, match="Steps run without CUDA graphs, because they cannot be captured") as notices:
        actual = train(method, compiled=False, steps=7, graphs=True)
    assert len(notices) == 1
    assert all(torch.equal(actual[key], expected[key]) for key in expected)


class SkipsAtRandom(torch.nn.Module):
    """Decides on the host which layers to apply, as networks with stochastic depth do."""

    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(784, 784) for _ in range(3))
        self.head = torch.nn.Linear(784, 10)

    def forward(self, x):
        x = x.flatten(1)
        for block in self.blocks:
            if torch.rand(()) < 0.5:
                x = x + block(x)
        return self.head(x)


def test_a_network_that_draws_on_the_host_is_not_captured():
    expected = train(Gaussian(sigma=0.25), compiled=False, steps=6, network=SkipsAtRandom)
    with pytest.warns(Notice, match="random numbers on the CPU") as notices:
        actual = train(Gaussian(sigma=0.25), compiled=False, steps=6, graphs=True, network=SkipsAtRandom)
    assert len(notices) == 1
    for key, value in expected.items():
        assert value is actual[key] is None or torch.equal(actual[key], value)


def test_a_run_beyond_the_recompile_limit_runs_uncompiled_with_the_same_numbers(monkeypatch):
    monkeypatch.setattr(compiled_loss, "_MOST_COMPILED", 1)
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=1):
        train(Gaussian(sigma=0.25), compiled=True, steps=1)
        expected = train(Gaussian(sigma=0.25), compiled=False, size=4)
        with pytest.warns(UserWarning, match="Steps run uncompiled: .*limit"):
            actual = train(Gaussian(sigma=0.25), compiled=True, left=0, size=4)
    torch._dynamo.reset()
    assert all(torch.equal(actual[key], expected[key]) for key in expected)


def wrong_by(factor):
    """Return a compiler that multiplies the loss by `factor`."""

    def compiler(function, **_):
        def run(*args, **options):
            loss, watched = function(*args, **options)
            return factor * loss, watched

        return run

    return compiler


def normalized():
    """Return a network with BatchNorm, whose buffers change with every forward pass."""
    return torch.nn.Sequential(torch.nn.BatchNorm2d(1), torch.nn.Flatten(), torch.nn.Linear(784, 10))


@pytest.mark.parametrize(("factor", "off"), [(-1.0, "200%"), (float("nan"), "nan%")])
def test_wrongly_compiled_steps_run_uncompiled_with_the_same_numbers(monkeypatch, factor, off):
    monkeypatch.setattr(torch, "compile", wrong_by(factor))
    expected = train(Gaussian(sigma=0.25), compiled=False, network=normalized)
    with pytest.warns(Notice, match=f"gradients of the compiled step are off by {off}") as notices:
        actual = train(Gaussian(sigma=0.25), compiled=True, left=0, network=normalized)
    assert len(notices) == 1
    assert all(torch.equal(actual[key], expected[key]) for key in expected)


def failing(backwards):
    """Return a compiler whose code changes BatchNorm's buffers and then fails, forwards or backwards."""

    def fail(*_):
        raise AssertionError("expected stride 1==576\nmore of it")

    def compiler(function, **_):
        def run(*args, **options):
            loss, watched = function(*args, **options)
            if not backwards:
                fail()
            loss.register_hook(fail)
            return loss, watched

        return run

    return compiler


@pytest.mark.parametrize("backwards", [False, True])
def test_failing_compiled_steps_run_uncompiled_with_the_same_numbers(monkeypatch, backwards):
    monkeypatch.setattr(torch, "compile", failing(backwards))
    expected = train(Gaussian(sigma=0.25), compiled=False, network=normalized)
    with pytest.warns(Notice, match="Steps run uncompiled: expected stride 1==576.$") as notices:
        actual = train(Gaussian(sigma=0.25), compiled=True, left=0, network=normalized)
    assert len(notices) == 1
    assert all(torch.equal(actual[key], expected[key]) for key in expected)


def test_the_comparison_leaves_no_trace_and_allows_dropout(monkeypatch):
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    plain, compiled = (train(Gaussian(sigma=0.25), compiled=compiled, network=normalized) for compiled in (False, True))
    assert all(torch.equal(plain[key], compiled[key]) for key in plain)
    dropping = lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.9), torch.nn.Linear(784, 10))  # noqa: E731
    train(Gaussian(sigma=0.25), compiled=True, network=dropping)  # asserts that it does not fall back
    torch._dynamo.reset()


@dataclasses.dataclass(frozen=True)
class ThreadRanks(Ranks):
    """One of two ranks that are threads of this process."""

    sent: dict[int, torch.Tensor] = dataclasses.field(default_factory=dict)
    barrier: Any = None

    def sum_in_place(self, tensors):
        self.sent[self.rank] = torch.cat([tensor.flatten() for tensor in tensors])
        self.barrier.wait()
        total = self.sent[0] + self.sent[1]
        self.barrier.wait()
        for tensor, part in zip(tensors, total.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))


class Skipping(torch.nn.Module):
    """A network that skips different layers for each part of a mini-batch."""

    skipped: tuple[set[int], ...]

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
        self.layers[0].bias.requires_grad_(False)

    def forward(self, x):
        parts = zip(x.chunk(len(self.skipped)), self.skipped, strict=True)
        return torch.cat([self.part(x, skipped) for x, skipped in parts])

    def part(self, x, skipped):
        for place, layer in enumerate(self.layers):
            x = x if place in skipped else x + layer(x)
        return x


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_ranks_that_skip_different_layers_take_the_steps_of_one_process(kind):
    """Layers that both skip get no weight decay and no momentum, as in one process."""
    torch.manual_seed(0)
    data, initial = ResidentData(torch.rand(24, 4), torch.arange(24) % 4, None, "none"), Skipping()
    skipped = [({0, 2}, {1, 2}), ({2}, {2}), ({0}, {0, 1}), ({0, 2}, {0, 2})]

    def train(ranks):
        model = copy.deepcopy(initial)
        options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
        optimizer = kind(model.parameters(), 0.1, weight_decay=0.1, **options)
        stepper = Stepper(model, Gaussian(sigma=0.25), optimizer, data, seed=3, precision="fp32", ranks=ranks)
        for step, by_rank in enumerate(skipped):
            model.skipped = by_rank if ranks is None else by_rank[ranks.rank : ranks.rank + 1]
            share = stepper.ranks.share_of(6)
            stepper.set_position(0, step, 0.1)
            stepper.take_step((6 * step + share.first + torch.arange(share.size),), 6)
            if step == 1:
                assert model.layers[2].weight.grad is None
                assert torch.equal(model.layers[2].weight, initial.layers[2].weight)
        return model.state_dict()

    expected = train(None)
    one = ThreadRanks(0, 2, barrier=threading.Barrier(2, timeout=10))
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(train, (one, dataclasses.replace(one, rank=1))))
    for name, value in expected.items():
        assert torch.equal(found[0][name], found[1][name]), name
        torch.testing.assert_close(found[0][name], value, msg=lambda text, name=name: f"{name} {text}")
