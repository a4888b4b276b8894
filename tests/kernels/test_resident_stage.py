"""The CUDA kernel for a stage of a CIFAR ResNet, emulated on the CPU."""

import contextlib
import copy
import itertools

import pytest
import torch
from emulated_kernels import EmulatedFunction
from torch import nn
from torch.nn import functional as F

from smoothcert.errors import Notice
from smoothcert.kernels import resident_stage as kernels
from smoothcert.models import create_model
from smoothcert.models.cuda.resident_network import ResidentNetwork, ResidentStage, has_kernels, kernels_compile
from smoothcert.models.resnet import cifar_resnet
from smoothcert.smoothing.deploy import fold

SMALLER = {
    16: {"images": 2, "warps": 8, "lines": 8, "ahead": 1},
    32: {"images": 2, "warps": 8},
    64: {"tiles": 1, "warps": 8},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture
def emulated(folder, monkeypatch):
    """Return the numbers of channels of stages that ran, and a dict whose `backwards` reverses the order of threads."""
    launched, options = [], {"backwards": False}

    def function(channels, shape, device):
        launched.append(channels)
        constants = shape.constants(channels)
        return EmulatedFunction(folder, kernels.SOURCE, "resident_stage", constants, **options)

    monkeypatch.setattr(kernels, "stage_function", function)
    monkeypatch.setattr(kernels.torch.cuda, "device_of", lambda tensor: contextlib.nullcontext())
    monkeypatch.setattr(kernels.torch.cuda, "current_device", lambda: 0)
    return launched, options


def some_network(depth=14, in_channels=3):
    torch.manual_seed(0)
    network = cifar_resnet(depth, in_channels=in_channels).eval()
    for norm in filter(lambda module: isinstance(module, nn.BatchNorm2d), network.modules()):
        for tensor, low in ((norm.weight, 0.5), (norm.bias, -0.5), (norm.running_mean, -0.5), (norm.running_var, 0.5)):
            nn.init.uniform_(tensor, low, low + 1)
    return network


def rounded(x):
    return x.bfloat16().double()


def exact_layer(x, conv, norm, shortcut=None):
    """Apply a layer in double precision, with its own weights rounded; without ReLU."""
    x = F.conv2d(x, rounded(conv.weight), stride=conv.stride, padding=conv.padding)
    return copy.deepcopy(norm).double()(x) + (0 if shortcut is None else shortcut)


def exact_stage(x, blocks, stem=None):
    """Apply a stage in double precision, rounded once per convolution."""
    x = rounded(F.relu(exact_layer(x, *stem))) if stem else x
    for block in blocks:
        shortcut = rounded(exact_layer(x, *block.downsample)) if block.downsample else x
        x = rounded(F.relu(exact_layer(x, block.conv1, block.bn1)))
        x = rounded(F.relu(exact_layer(x, block.conv2, block.bn2, shortcut)))
    return x


@pytest.mark.parametrize(("channels", "other"), list(itertools.product((16, 32, 64), (False, True))))
@torch.no_grad()
def test_a_stage_is_its_layers_rounded_once_per_convolution(channels, other, emulated, monkeypatch):
    if other:  # tiles, warps and images per block must not matter
        monkeypatch.setitem(kernels.SHAPES, channels, kernels.SHAPES[channels]._replace(**SMALLER[channels]))
    network = some_network()
    stem, std = ((network.conv1, network.bn1), torch.ones(1)) if channels == 16 else (None, None)
    blocks = network.get_submodule(f"layer{channels // 32 + 1}")
    given, side = (3, 32) if channels == 16 else (channels // 2, 1024 // channels)
    x = torch.randn(3, given, side, side).bfloat16()
    if channels > 16:
        x = x.relu()
    stage = ResidentStage(blocks, stem, std)
    ours = stage(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2).double()
    expected = exact_stage(x.double(), blocks, stem)
    error = (ours - expected).abs() / expected.abs().clamp(min=1)
    # A float32 sum may round to the other of two neighboring values, which changes a few later values.
    assert float(error.max()) < 2**-5
    assert float((error > 0).double().mean()) < 0.02
    assert float((expected > 0).double().mean()) > 0.3

    # Threads in reverse order, another layout of the images, NaN in one image.
    emulated[1]["backwards"] = True
    x[1, 0, side // 2, side - 1] = torch.nan
    hurt = stage(x.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    assert torch.equal(hurt[[0, 2]].double(), ours[[0, 2]])
    assert bool(hurt[1].isnan().all(dim=0).any())
    stage.weights[0] = torch.nan
    assert bool(stage(x[:1].permute(0, 2, 3, 1)).isnan().any()), "a network that returns NaN must be noticed"


@torch.no_grad()
def test_a_network_is_its_layers_and_others_run_on_folded_layers(emulated):
    for channels, std in ((3, (0.2, 0.3, 0.25)), (1, (0.25,))):
        model = create_model("cifar_resnet20", in_channels=channels, mean=(0.0,) * len(std), std=std).eval()
        model.network = some_network(8, channels)
        folded = fold(model)
        assert has_kernels(model.network)
        assert not has_kernels(folded.network)
        ours = copy.deepcopy(folded).bfloat16()
        ours.network = ResidentNetwork(model.network, model.normalize.std, ours.network)
        emulated[0].clear()
        x = torch.rand(2, channels, 32, 32)
        scores, expected = ours(x.bfloat16()).float(), model(x)
        assert emulated[0] == [16, 32, 64]
        assert float((scores - expected).norm()) < 0.02 * float(expected.norm())
        x = torch.rand(2, channels, 28, 28).bfloat16()
        assert torch.equal(ours(x), folded.bfloat16()(x))
        assert len(emulated[0]) == 3
    # One scale for all channels is not a part of the weights, which are rounded.
    network = some_network(8)
    first, others = network.layer1, (network.conv1, network.bn1)
    plain, scaled = (ResidentStage(first, others, torch.full((number,), std)) for number, std in ((1, 1.0), (3, 0.3)))
    assert torch.equal(plain.weights, scaled.weights)
    assert not has_kernels(create_model("lenet").network)
    assert not has_kernels(create_model("resnet50").network)
    assert not has_kernels(some_network(8, 5))


def test_a_kernel_that_does_not_compile_is_left_out_with_a_warning(monkeypatch):
    monkeypatch.setattr(kernels.torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(kernels.torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(kernels.torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.version, "cuda", "1.0")  # which no NVRTC belongs to
    with pytest.warns(Notice, match=r"vote several times slower, since .*libnvrtc\.so\.1"):
        assert not kernels_compile(torch.device("cuda"))
