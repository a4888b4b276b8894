"""The cost of a run, and the decision whether compilation pays off."""

import pytest
import torch

import smoothcert
from smoothcert.training.compute import pays_to_compile, step_passes, with_defaults
from smoothcert.training.passes import mean_passes


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("gaussian", {}, 3),
        ("stability", {}, 6),
        ("consistency", {}, 3),
        ("macer", {}, 3),
        ("smoothadv", {"attack_steps": 10}, 23),
        ("smoothmix", {"attack_steps": 4}, 14),
        ("catrs", {"attack_steps": 4}, 14),
        ("first-failure", {"attack_steps": 4}, 11),
        ("first-failure", {"attack_steps": 0}, 3),
    ],
)
def test_passes_of_each_method(name, options, expected):
    config = smoothcert.TrainConfig(method=name, options=options)
    assert mean_passes(with_defaults(config)) == expected


def test_passes_of_a_whole_step():
    """3,584 passes for CAT-RS and 768 for Gaussian training; benchmarks/README.md has the times."""
    catrs, gaussian = (smoothcert.load_recipe(f"mnist-{name}-0.50") for name in ("catrs", "gaussian"))
    assert (step_passes(catrs), step_passes(gaussian)) == (3584, 768)
    whole = smoothcert.load_recipe("mnist-catrs-0.50", steps="whole")
    assert step_passes(whole) == 4 * step_passes(catrs), "no smaller steps"


@pytest.mark.parametrize(
    ("recipe", "steps", "expected"),
    [
        ("mnist-catrs-0.50", 141_000, True),
        ("mnist-catrs-0.50", 20_000, False),  # the rest of an interrupted run
        ("mnist-smoothmix-0.25", 84_600, True),
        ("mnist-smoothadv-0.25", 84_600, True),
        ("mnist-gaussian-0.50", 21_150, False),
        ("mnist-consistency-0.50", 42_300, False),
    ],
)
def test_heavy_steps_are_compiled_sooner(recipe, steps, expected):
    config = smoothcert.load_recipe(recipe)
    assert pays_to_compile(config, steps, torch.device("cuda")) == expected
    assert not pays_to_compile(config, steps, torch.device("cpu"))


def test_a_network_on_our_kernels_is_not_compiled():
    """ResNet-110 in bfloat16 gains 2 % from compilation, less than the compilation itself takes."""
    gpu, steps = torch.device("cuda"), 117_000
    for precision, expected in (("bf16", False), ("tf32", True)):
        config = smoothcert.load_recipe("cifar10-catrs-0.50", precision=precision)
        assert pays_to_compile(config, steps, gpu) == expected
