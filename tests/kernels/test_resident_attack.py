"""The CUDA kernels for attacks on a stage of a CIFAR ResNet, emulated on the CPU."""

import contextlib
import itertools

import pytest
import torch
from emulated_kernels import EmulatedFunction
from torch.nn import functional as F

from smoothcert.errors import Notice
from smoothcert.kernels import resident_attack as kernels

OTHERS = {
    16: {"images": 2, "warps": 4, "lines": 16, "ahead": 1},
    32: {"images": 2, "warps": 8, "lines": 4},
    64: {"images": 4, "tiles": 2, "warps": 4},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture
def emulated(folder, monkeypatch):
    """Return the names of the launched kernels, and a dict whose `backwards` reverses the order of threads."""
    launched, options = [], {"backwards": False}

    def function(name, channels, shape, device):
        launched.append(name)
        return EmulatedFunction(folder, kernels.SOURCE, name, shape.constants(channels), **options)

    monkeypatch.setattr(kernels, "attack_function", function)
    monkeypatch.setattr(kernels.torch.cuda, "device_of", lambda tensor: contextlib.nullcontext())
    monkeypatch.setattr(kernels.torch.cuda, "current_device", lambda: 0)
    return launched, options


class Rounded(torch.autograd.Function):
    """Round values and their gradients to bfloat16, in double precision."""

    @staticmethod
    def forward(ctx, x):
        return x.bfloat16().double()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.bfloat16().double()


def exact_layers(x, shortcut, weights, biases):
    """Apply layers to images [count, height, width, channels] in double precision, rounded where the kernels round."""
    x, weights = Rounded.apply(x).permute(0, 3, 1, 2), weights.double().permute(0, 1, 4, 2, 3)
    added = 0 if shortcut is None else Rounded.apply(shortcut).permute(0, 3, 1, 2)
    for number, (weight, bias) in enumerate(zip(weights, biases.double(), strict=True)):
        opens = number % 2 == 1  # the first layer of a residual block
        made = F.conv2d(x, weight, bias, padding=1) + (0 if opens else added)
        added, x = (x if opens else None), Rounded.apply(F.relu(made))
        added = x if number % 2 == 0 else added
    return x.permute(0, 2, 3, 1)


def some_layers(channels, layers, count):
    torch.manual_seed(layers)
    side = 512 // channels
    weights = (torch.randn(layers, channels, 3, 3, channels) / (9 * channels) ** 0.5).bfloat16()
    images, shortcut, gradient = (torch.randn(count, side, side, channels).bfloat16() for _ in range(3))
    return images, shortcut, weights, torch.rand(layers, channels) - 0.5, gradient


def both(apply, images, shortcut, weights, biases, gradient):
    """Return the output of layers and the gradients of images and shortcut."""
    inputs = [tensor.clone().requires_grad_() for tensor in (images, shortcut) if tensor is not None]
    given = *inputs, *(() if shortcut is not None else (None,))
    out = apply(*given, weights, biases)
    return out.detach(), *torch.autograd.grad(out, inputs, gradient.to(out.dtype))


def ours(*arguments):
    return kernels.AttackLayers.apply(*arguments)[0]


def distance(found, expected):
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize(("channels", "other"), list(itertools.product((16, 32, 64), (False, True))))
def test_layers_and_gradients_are_rounded_once_per_convolution(channels, other, emulated, monkeypatch):
    if other:  # tiles, warps and images per block must not matter
        monkeypatch.setitem(kernels.SHAPES, channels, kernels.SHAPES[channels]._replace(**OTHERS[channels]))
    for layers, limit in ((1, 1e-4), (5, 2**-7)):  # float32 sums that round the other way change later layers
        images, shortcut, *others, gradient = some_layers(channels, layers, 3)
        for added in (shortcut, None):
            given = images, added, *others, gradient
            emulated[0].clear()
            found = both(ours, *given)
            assert emulated[0] == ["attack_layers", "attack_layers_gradient"]
            for name, value, expected in zip(
                ("values", "images", "shortcut"), found, both(exact_layers, *given), strict=False
            ):
                assert distance(value, expected) < limit, (name, layers)
            emulated[1]["backwards"] = True
            assert all(map(torch.equal, both(ours, *given), found))
            emulated[1]["backwards"] = False

    hurt = images.clone()
    hurt[1, 3, 4, 0] = torch.nan
    values = both(ours, hurt, shortcut, *others, gradient)
    assert torch.equal(values[0][[0, 2]], both(ours, images, shortcut, *others, gradient)[0][[0, 2]])
    assert bool(values[0][1].isnan().any()), "a run that diverges must be noticed"


def test_the_output_does_not_depend_on_other_images(emulated):
    images, shortcut, *others, gradient = some_layers(64, 3, 5)
    together = both(ours, images, shortcut, *others, gradient)
    alone = both(ours, images[4:], shortcut[4:], *others, gradient[4:])
    assert all(torch.equal(many[4:], one) for many, one in zip(together, alone, strict=True))


def test_only_attacks_on_supported_layers_use_the_kernels(monkeypatch):
    monkeypatch.setattr(kernels, "attack_kernels", lambda device: True)
    images, _, weights, biases, _ = some_layers(32, 3, 2)
    assert kernels.fits(images, weights, biases)
    assert not kernels.fits(images.float(), weights, biases)
    assert not kernels.fits(images[:, :14], weights, biases)
    assert not kernels.fits(images, weights[:2], biases[:2])
    assert not kernels.fits(images, weights.float().requires_grad_(), biases)
    assert not kernels.fits(images, weights, biases.requires_grad_())
    assert not kernels.fits(torch.zeros(2, 32, 32, 8).bfloat16(), torch.zeros(1, 8, 3, 3, 8), torch.zeros(1, 8))
    assert not kernels.fits(images, weights[..., :16], torch.zeros(3, 32))
    assert not kernels.fits(images, weights.float(), torch.zeros(3, 32))
    assert not kernels.fits(images[:0], weights, torch.zeros(3, 32))


def test_kernels_are_tried_before_they_are_used(emulated, monkeypatch):
    monkeypatch.setattr(kernels, "_usable", None)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not kernels.attack_kernels(torch.device("cpu"))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: False)
    assert kernels.attack_kernels(torch.device("cpu"))
    assert len(emulated[0]) == 2 * len(kernels.SHAPES)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert kernels.attack_kernels(torch.device("cpu"))


def without(what):
    """Return a change to the results of `run_gradient` or `run_layers` that makes them wrong."""

    def changed(*arguments):
        first, second = what[1](*arguments)
        first = first.clone()
        first[..., -1, :, :] = what[2]
        return first, second

    return what[0], changed


@pytest.mark.parametrize(
    "wrong",
    [("run_layers", kernels.run_layers, 0), ("run_gradient", kernels.run_gradient, torch.nan)],
    ids=["zeros in values", "NaN in gradients"],
)
def test_wrong_kernels_are_left_out_with_a_warning(wrong, emulated, monkeypatch):
    monkeypatch.setattr(kernels, "_usable", None)
    monkeypatch.setattr(kernels, *without(wrong))
    with pytest.warns(Notice, match=r"^Attacks on CIFAR ResNets are slower, since results of their kernel are off by"):
        assert not kernels.attack_kernels(torch.device("cpu"))
    assert not kernels.attack_kernels(torch.device("cpu")), "the second time without a warning"


def test_biases_are_part_of_the_check(emulated, monkeypatch):
    right = kernels.run_layers
    monkeypatch.setattr(kernels, "run_layers", lambda *layers: right(*layers[:3], 0 * layers[3], layers[4]))
    assert not bool((kernels.deviations(64, kernels.SHAPES[64], torch.device("cpu")) < 0.1).any())


def test_full_memory_is_tried_again(emulated, monkeypatch):
    def full(*arguments):
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(kernels, "_usable", None)
    monkeypatch.setattr(kernels, "deviations", full)
    assert not kernels.attack_kernels(torch.device("cpu"))
    assert kernels._usable is None


def test_kernels_that_do_not_compile_are_left_out_with_a_warning(monkeypatch):
    monkeypatch.setattr(kernels, "_usable", None)
    monkeypatch.setattr(kernels.torch.cuda, "device_of", lambda tensor: contextlib.nullcontext())
    monkeypatch.setattr(kernels.torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(kernels.torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.version, "cuda", "1.0")  # which no NVRTC belongs to
    with pytest.warns(Notice, match=r"Attacks on CIFAR ResNets are slower, since .*libnvrtc\.so\.1"):
        assert not kernels.attack_kernels(torch.device("cpu"))
