"""Methods registered by users: trained like the others, or rejected with a reason."""

from dataclasses import dataclass

import pytest
import torch
from torch.nn import functional as F

import smoothcert
from smoothcert.cli import build_parser, main
from smoothcert.cli.train import resolve
from smoothcert.errors import UsageError
from smoothcert.methods import METHODS, Method, StepOutput, create_method
from smoothcert.methods.base import at_least_one, positive
from smoothcert.training.config import TrainConfig
from smoothcert.training.fit import fit
from smoothcert.training.known_methods import method_title
from smoothcert.training.passes import relative_cost


@pytest.fixture
def known_methods():
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


@dataclass(frozen=True, kw_only=True)
class Twice(Method):
    name = "twice"
    title = "Twice as much"
    training_passes = 2

    factor: float = positive(2.0, "what the loss is multiplied by")

    def step(self, model, x, y, *, draws, epoch, soft=None):
        return StepOutput(self.factor * F.cross_entropy(model(x + self.sigma * draws.noise(x, 1)[0]), y))


def test_a_registered_method_is_like_ours(known_methods, tmp_path, few):
    assert smoothcert.register_method(Twice) is Twice
    assert smoothcert.register_method(Twice) is Twice  # as when a notebook cell runs again
    assert create_method("twice", 0.5, {"factor": 3}) == Twice(sigma=0.5, factor=3)
    with pytest.raises(UsageError, match="`factor` to be > 0"):
        create_method("twice", 0.5, {"factor": -1.0})
    arguments = ["train", "--method", "twice", "--factor", "4", "--dataset", "mnist-mini"]
    (config,) = resolve(build_parser().parse_args(arguments))
    assert (config.method, config.options) == ("twice", {"factor": 4.0})
    network = fit(smoothcert.load_recipe("mnist-mini-gaussian-1.00", method="twice", epochs=1), tmp_path, few, few)
    assert smoothcert.load_checkpoint(network).about["method"] == "twice"


def test_reports_use_the_title_and_cost_of_a_registered_method(known_methods):
    @smoothcert.register_method
    @dataclass(frozen=True, kw_only=True)
    class Thrice(Twice):
        name = "thrice"
        num_noises: int = at_least_one(3, "noise samples per image")

    smoothcert.register_method(Twice)
    assert method_title("twice") == "Twice as much"
    assert method_title("thrice") == "thrice", "titles are not inherited"
    assert relative_cost(TrainConfig(method="twice")) == 2
    assert relative_cost(TrainConfig(method="thrice")) == 6


def test_an_option_with_the_name_of_a_setting_is_refused(known_methods, capsys):
    @smoothcert.register_method
    @dataclass(frozen=True, kw_only=True)
    class Heavy(Twice):
        name = "heavy"
        momentum: float = positive(0.5, "an option that hides a setting")

    assert main(["train", "--help"]) == 2
    assert "Option momentum of method heavy has the name of a setting; rename it." in capsys.readouterr().err


def test_methods_that_cannot_be_registered(known_methods):
    with pytest.raises(UsageError, match="Expected a dataclass that extends Method"):
        smoothcert.register_method(type("Plain", (Method,), {"name": "plain", "step": Twice.step}))
    with pytest.raises(UsageError, match="Expected a dataclass that extends Method"):
        smoothcert.register_method("twice")

    @dataclass(frozen=True, kw_only=True)
    class Nameless(Method):
        step = Twice.step

    @dataclass(frozen=True, kw_only=True)
    class Gaussian(Twice):
        name = "gaussian"

    @dataclass(frozen=True, kw_only=True)
    class Bare(Twice):
        name = "bare"
        amount: float

    for method, message in (
        (Nameless, "Nameless needs a class attribute called name"),
        (Gaussian, "There is already a method 'gaussian'"),
        (Bare, "Option amount of Bare needs a default"),
    ):
        with pytest.raises(UsageError, match=message):
            smoothcert.register_method(method)
    assert "bare" not in smoothcert.list_methods()


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, r"Expected the loss of a step to be a scalar tensor, but got shape \[4\]"),
        ({"share": 0.5}, "but 'share' is a float"),
        ([0.5], "Expected `parts` to map names to tensors, but got a list"),
        ({"loss": torch.tensor(0.0)}, "reserved names, but got 'loss'"),
        ({"epoch": torch.tensor(0.0)}, "reserved names, but got 'epoch'"),
    ],
)
def test_what_a_step_must_return(parts, message):
    losses = torch.ones(4, requires_grad=True)
    with pytest.raises(UsageError, match=message):
        StepOutput(losses.mean() if parts else losses, parts).watched()


@pytest.mark.parametrize("loss", [None, 0.5, [torch.tensor(1.0)]])
def test_a_loss_that_is_not_a_tensor(loss):
    with pytest.raises(UsageError, match="Expected the loss of a step to be a scalar tensor, but got a"):
        StepOutput(loss).watched()


def test_what_is_watched_holds_no_step_in_memory():
    losses = torch.ones(4, requires_grad=True)
    watched = StepOutput(losses.mean(), {"all": losses, "most": losses.amax()}).watched()
    assert watched.keys() == {"loss", "most"}
    assert not any(value.requires_grad for value in watched.values())


def test_a_step_that_returns_its_loss_alone(known_methods, tmp_path, few):
    @smoothcert.register_method
    @dataclass(frozen=True, kw_only=True)
    class Alone(Twice):
        name = "alone"

        def step(self, model, x, y, **more):
            return F.cross_entropy(model(x), y)

    config = smoothcert.load_recipe("mnist-mini-gaussian-1.00", method="alone", epochs=1)
    with pytest.raises(UsageError, match="the step of alone to return a `StepOutput`, but got a Tensor"):
        fit(config, tmp_path, few, few)
