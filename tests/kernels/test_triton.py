"""The Triton kernels in Triton's interpreter, without a GPU; skipped if Triton is not installed."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS, HELPERS = Path(__file__).parents[2] / "scripts", Path(__file__).parents[1] / "helpers"
INTERPRETER = """
import contextlib
import sys
import torch
from triton.runtime import interpreter

torch.cuda.device_of = lambda tensor: contextlib.nullcontext()  # there is no GPU
patch = interpreter._patch_lang_tensor
def patched(tensor, scope):
    patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())  # NumPy 2.4 rejects int(array)
interpreter._patch_lang_tensor = patched
"""
GRID = """
from smoothcert.kernels import noise
from smoothcert.smoothing.noising import _table, add_noise
from smoothcert.statistics.integer_noise import grid_noise

torch.manual_seed(0)
for sigma, shape in ((0.02, (3, 5, 7)), (0.25, (1, 28, 28)), (1.0, (3, 5, 7)), (6.0, (1, 28, 28))):
    size = torch.Size(shape).numel()
    inputs = torch.randint(256, (5, *shape)).float() / 255
    rows, samples = torch.randint(5, (12,)), torch.randint(2**32 - 1, (12,))
    indices = torch.arange(5) * 1000 + 2**31
    table, offset, limits = _table(sigma, torch.device("cpu"))
    options = {"seed": 2**40 + 17, "purpose": 0, "dtype": torch.float32}
    ours = noise.grid_copies(
        inputs, rows, indices, samples, table=table, offset=offset, sigma=sigma, limits=limits, **options
    )
    plain = add_noise(grid_noise(sigma, size), inputs, rows, indices, samples.unsqueeze(1), **options)
    assert torch.equal(ours, plain.view_as(ours)), sigma
print("equal")
"""
NOISE = """
from known_answers import wrong_answers
from smoothcert.kernels import noise
from smoothcert.philox import normal, uniform

assert wrong_answers(torch.device("cpu")) == 0
torch.manual_seed(0)
samples, rows = torch.tensor([0, 7, 2**31, 2**32 - 1]), torch.tensor([0, 2, 2, 1])
indices = torch.tensor([5, 2**32 - 1, 2**31])
close = {"rtol": 0, "atol": 1e-5}
for seed in (0, 2**32 - 1, 2**63 - 1):
    for size in (1, 785, 1025):  # sizes that leave groups and programs partly empty
        words = samples, torch.tensor([[0], [2**32 - 1]]), torch.tensor(3)
        torch.testing.assert_close(noise.draw(seed, *words, size, True), normal(seed, words, size), **close)
        assert torch.equal(noise.draw(seed, *words, size, False), uniform(seed, words, size))
        inputs, options = torch.rand(3, size), {"sigma": 0.5, "seed": seed, "purpose": 1 << 16, "dtype": torch.float32}
        ours = noise.noisy_copies(inputs, rows, indices, samples, **options)
        plain = inputs[rows] + 0.5 * normal(seed, (samples, indices[rows], 1 << 16), size)
        torch.testing.assert_close(ours, plain, **close)
print("close")
"""
POOLED = """
from torch.nn import functional as F

import smoothcert
from smoothcert.models.cuda.pooled_convolution import PooledConv

torch.manual_seed(0)
shapes = (1, 20, 5, 28, 28), (20, 50, 5, 12, 12), (3, 7, 3, 11, 15), (2, 5, 1, 8, 9)
for channels, filters, size, height, width in shapes:
    conv, x = torch.nn.Conv2d(channels, filters, size), torch.randn(5, channels, height, width)
    with torch.no_grad():
        pooled, close = F.max_pool2d(F.relu(conv(x)), 2), {"rtol": 0, "atol": 1e-5}
        torch.testing.assert_close(PooledConv(conv)(x), pooled, **close)
        torch.testing.assert_close(PooledConv(conv, flat=True)(x), pooled.flatten(1), **close)
    with torch.no_grad():
        conv.weight[0, 0, 0, 0] = torch.nan
        assert bool(PooledConv(conv)(x)[:, 0].isnan().all()), "a network that returns NaN must be noticed"
lenet, x = smoothcert.create_model("lenet").eval(), torch.rand(3, 1, 28, 28)
with torch.no_grad():
    plain = lenet(x)
    lenet.network.conv1 = PooledConv(lenet.network.conv1)
    lenet.network.conv2 = PooledConv(lenet.network.conv2, flat=True)
    torch.testing.assert_close(lenet(x), plain, rtol=0, atol=1e-5)
assert "torch._dynamo" not in sys.modules, "importing the compiler takes a short command seconds"
print("close")
"""
LAYERS = """
import copy
from torch import nn

import smoothcert
from smoothcert.distributed.sync_batchnorm import sync_batchnorm
from smoothcert.distributed.ranks import Ranks
from smoothcert.kernels import convolution
from smoothcert.models.cuda import training_network as kernels
from smoothcert.models import resnet
from smoothcert.methods.perturb import frozen, gradient

convolution._GATHERED = 256  # fewer programs, since the interpreter is slow
convolution.PROGRAMS = 2  # each sums several tiles

def some_network(channels, *depths, block=resnet.BasicBlock):
    network = resnet.ResNet(block, depths, channels, small_images=True, num_classes=3, in_channels=2)
    network.to(memory_format=torch.channels_last)
    for norm in filter(lambda module: isinstance(module, nn.BatchNorm2d), network.modules()):
        for tensor, low in (
            (norm.weight, 0.5), (norm.bias, -0.5), (norm.running_mean, -0.5), (norm.running_var, 0.5)
        ):
            nn.init.uniform_(tensor, low, low + 1)
    return network

def loss(network, x, y):
    return nn.functional.cross_entropy(network(x), y)

def attacked(network, x, y):
    with frozen(network):
        moved = x + gradient(lambda x: loss(network, x, y), x)
    return loss(network, moved, y) + loss(network, x, y)

def found(kernels, apply, network, x):
    resnet._uses_training_kernels = lambda x: kernels and torch.is_grad_enabled()
    network, x = copy.deepcopy(network), x.clone().requires_grad_()
    total = apply(network, x, torch.arange(len(x)) % 3)
    total.backward()
    return [total.detach(), x.grad, *(w.grad for w in network.parameters()), *network.buffers()]

torch.manual_seed(0)
runs, run_stages = [], kernels.run_stages
kernels.run_stages = lambda *inputs: runs.append(len(inputs)) or run_stages(*inputs)
# Partly empty tiles and programs, images that are not square; attacks in eval mode before a step.
plain, x = some_network(16, 1), torch.randn(11, 2, 8, 6)
whole = torch.compile(attacked, fullgraph=True, dynamic=False)
deep = lambda network, x, y: attacked(torch.compile(network, fullgraph=True, dynamic=False), x, y)
expected = found(False, attacked, plain, x)
assert not runs
for apply in (attacked, whole, deep):
    runs.clear()
    torch.testing.assert_close(found(True, apply, plain, x), expected, rtol=1e-4, atol=1e-5)
    assert len(runs) >= 2  # the deep network is traced once in either mode
for channels, depths, shape in ((16, (1, 2), (3, 2, 4, 8)), (32, (1, 1), (2, 2, 4, 4))):
    network, x = some_network(channels, *depths), torch.randn(shape)
    for mode in (True, False):
        runs.clear()
        network.train(mode)
        torch.testing.assert_close(found(True, loss, network, x), found(False, loss, network, x), rtol=1e-4, atol=1e-5)
        assert len(runs) == 1

# The variance of values far from zero, combined from parts with different means.
conv, norm, x = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16, momentum=1.0), torch.randn(11, 16, 8, 6)
x += 1000 + torch.arange(11.0).view(-1, 1, 1, 1)
kernels.run_layers(x, [(conv, norm)])
torch.testing.assert_close(norm.running_var.double(), conv(x).double().var(dim=(0, 2, 3)), rtol=1e-3, atol=0)
with torch.no_grad():
    conv.weight[0, 0, 1, 1] = torch.nan
    assert bool(kernels.run_layers(x, [(conv, norm)])[:, 0].isnan().all()), "a run that diverges must be noticed"

x = torch.zeros(2, 2, 16, 8)
assert kernels.has_kernels(some_network(16, 1, 1, 1), x)
assert not kernels.has_kernels(some_network(16, 1, 1, 1), x[:, :, :12])
for network in (
    some_network(8, 1), some_network(16, 1).double(), some_network(16, 1, block=resnet.Bottleneck),
    smoothcert.create_model("resnet50").network,
):
    assert not kernels.has_kernels(network, x)
for change in ({"affine": False}, {"momentum": None}, {"track_running_stats": False}):
    network = some_network(16, 1)
    network.layer1[0].bn2 = nn.BatchNorm2d(16, **change)
    assert not kernels.has_kernels(network, x), change
network = some_network(16, 1)
network.layer1[0].bn2.eval()
assert not kernels.has_kernels(network, x)
network = some_network(16, 1)
network.layer1[0].conv2 = type("Own", (nn.Conv2d,), {})(16, 16, 3, padding=1, bias=False)
assert not kernels.has_kernels(network, x)
network = some_network(16, 1)
assert sync_batchnorm(network, Ranks()) and not kernels.has_kernels(network, x)
network = some_network(16, 1)
network.layer1[0].conv2.register_forward_hook(lambda *call: None)
assert not kernels.has_kernels(network, x)

resnet._uses_training_kernels = lambda x: torch.is_grad_enabled()
network, x = some_network(16, 1), torch.randn(2, 2, 4, 4, requires_grad=True)
(found,) = torch.autograd.grad(loss(network, x, torch.arange(2)), x, create_graph=True)
try:
    found.square().sum().backward()
except RuntimeError as error:
    assert "once_differentiable" in str(error), "gradients have none of their own, and must not pretend"
    print("close")
"""
CHAINED = """
from torch.nn import functional as F

from smoothcert.kernels.pointwise import CHAINS, chain

def convolution(channels, filters, size=1):
    weight = torch.randn(filters, size, size, channels) / (channels * size * size) ** 0.5
    return [weight, torch.randn(filters)]

def apply(images, weight, bias):
    made = F.conv2d(images.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2), bias, padding=weight.shape[1] // 2)
    return made.permute(0, 2, 3, 1)

torch.manual_seed(0)
for width, next_width, given in CHAINS:
    for ahead in (0, 3):
        CHAINS[width, next_width, given] = CHAINS[width, next_width, given]._replace(ahead=ahead)
        x, shortcut = torch.randn(3, 5, 11, width), torch.randn(3, 5, 11, given or 4 * width)
        middle = convolution(width, width, 3) if ahead else []
        last, following = convolution(width + given, 4 * width), convolution(4 * width, next_width)
        inputs = F.relu(apply(x, *middle)) if middle else x
        if given:
            wide = F.relu(apply(torch.cat([inputs, shortcut], 3), *last))
        else:
            wide = F.relu(apply(inputs, *last) + shortcut)
        narrow = F.relu(apply(wide, *following))
        ours = chain(x, shortcut, middle, last, following)
        torch.testing.assert_close(ours, (wide, narrow), rtol=1e-5, atol=1e-5)
print("close")
"""
BOTTLENECK = """
from smoothcert.smoothing.deploy import fold
from smoothcert.models import create_model
from smoothcert.kernels import pointwise
from smoothcert.models.cuda.bottleneck import BottleneckNetwork, has_bottlenecks
from smoothcert.models.layers import Classifier, Normalize
from smoothcert.models.resnet import Bottleneck, ResNet

torch.manual_seed(0)
network = ResNet(Bottleneck, (2, 1), 64, small_images=False, num_classes=5)
for module in network.modules():
    if isinstance(module, torch.nn.BatchNorm2d):
        for tensor, low in ((module.running_mean, -1), (module.running_var, 1), (module.bias, -1)):
            torch.nn.init.uniform_(tensor, low, low + 2)
assert not has_bottlenecks(network)  # not folded
assert not has_bottlenecks(fold(create_model("cifar_resnet20")).network)
assert has_bottlenecks(fold(create_model("resnet50")).network)
plain = fold(Classifier(Normalize(), network, "some", num_classes=5, in_channels=3)).network
with torch.no_grad():
    # Partly empty tiles; images that are not square, with sides that are odd when halved.
    for chained in (True, False):
        if not chained:
            pointwise.CHAINS.clear()
        for shape in ((3, 3, 32, 32), (2, 3, 36, 28))[chained - 1 :]:
            x, ours = torch.randn(shape), BottleneckNetwork(plain)
            torch.testing.assert_close(ours(x), plain(x), rtol=1e-5, atol=1e-5)
        assert [link.tile is not None for link in ours.links] == [chained, chained, False]
        ours.first.weight = torch.full_like(ours.first.weight, torch.nan)
        assert bool(ours(x).isnan().all()), "a network that returns NaN must be noticed"
print("close")
"""
ATTACK = """
import pathlib
import tempfile
from emulated_kernels import EmulatedFunction
from torch import nn
from torch.nn import functional as F
from smoothcert.kernels import resident_attack
from smoothcert.methods.perturb import frozen
from smoothcert.models.cuda import training_network

folder, launched = pathlib.Path(tempfile.mkdtemp()), []
def function(name, channels, shape, device):
    launched.append(name)
    return EmulatedFunction(folder, resident_attack.SOURCE, name, shape.constants(channels))

resident_attack.attack_function = function
torch.cuda.current_device = lambda: 0
assert resident_attack.attack_kernels(torch.device("cpu"))
torch.manual_seed(0)
convs = [nn.Conv2d(16, 16, 3, padding=1, bias=False) for _ in range(3)]
layers = nn.ModuleList(nn.ModuleList((conv, nn.BatchNorm2d(16))) for conv in convs)
for _, norm in layers:
    for tensor, low in ((norm.weight, 0.5), (norm.bias, -0.5), (norm.running_mean, -0.5), (norm.running_var, 0.5)):
        nn.init.uniform_(tensor, low, low + 1)
(first, norm), *others = layers
first.weight.data[:, 3:] = 0  # the stem gets images of three channels
images = torch.randn(2, 3, 32, 32).bfloat16().float().requires_grad_()
with frozen(layers):
    stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
    stem.weight.data = first.weight[:, :3]
    expected = F.relu(norm(stem(images)))
    expected = F.relu(others[1][1](others[1][0](F.relu(others[0][1](others[0][0](expected))))) + expected)
    launched.clear()
    stem.requires_grad_(False)
    ours = training_network.run_layers(images.bfloat16(), [(stem, norm), *map(tuple, others)])
    gradient = torch.randn_like(expected)
    pairs = [(ours.float(), expected)]
    pairs.append([torch.autograd.grad(made, images, gradient.to(made.dtype))[0] for made in (ours, expected)])
assert launched == ["attack_layers", "attack_layers_gradient"], launched
for found, exact in pairs:
    assert torch.dist(found, exact) < 0.05 * exact.norm(), torch.dist(found, exact) / exact.norm()
print("close")
"""


# Triton is installed with the CUDA version of torch only; elsewhere, `make test-kernels` installs it.
if importlib.util.find_spec("triton"):

    def test_the_noise_kernels_are_the_plain_definition_and_give_the_known_answers():
        assert interpreted(NOISE) == "close"

    def test_the_grid_kernel_is_the_plain_definition_to_the_bit():
        assert interpreted(GRID) == "equal"

    def test_the_pooling_kernel_is_convolution_and_pooling():
        assert interpreted(POOLED) == "close"

    @pytest.mark.slow
    def test_the_training_kernels_are_residual_layers_with_gradients_and_statistics():
        assert interpreted(LAYERS) == "close"

    def test_attacks_run_on_the_kernel_that_keeps_a_stage_in_shared_memory():
        assert interpreted(ATTACK) == "close"

    def test_the_chain_kernel_is_its_convolutions():
        assert interpreted(CHAINED) == "close"

    def test_the_bottleneck_kernels_are_the_network():
        assert interpreted(BOTTLENECK) == "close"

    def interpreted(code):
        path = os.pathsep.join([str(SCRIPTS), str(HELPERS), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", INTERPRETER + code], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()
