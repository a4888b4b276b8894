"""The CUDA kernels' definition, run by Triton's interpreter where Triton is installed; no GPU is needed."""

import importlib.util
import os
import subprocess
import sys

GRID = """
import contextlib
import torch

torch.cuda.device_of = lambda tensor: contextlib.nullcontext()  # there is none here
from smoothcert import philox_triton
from smoothcert.engine.noising import _table, add_noise
from smoothcert.thresholds import grid_noise

torch.manual_seed(0)
for sigma, shape in ((0.02, (3, 5, 7)), (0.25, (1, 28, 28)), (1.0, (3, 5, 7)), (6.0, (1, 28, 28))):
    size = torch.Size(shape).numel()
    inputs = torch.randint(256, (5, *shape)).float() / 255
    rows, samples = torch.randint(5, (12,)), torch.randint(2**32 - 1, (12,))
    indices = torch.arange(5) * 1000 + 2**31
    table, offset, limits = _table(sigma, torch.device("cpu"))
    options = {"seed": 2**40 + 17, "purpose": 0, "dtype": torch.float32}
    ours = philox_triton.grid_copies(
        inputs, rows, indices, samples, table=table, offset=offset, sigma=sigma, limits=limits, **options
    )
    plain = add_noise(grid_noise(sigma, size), inputs, rows, indices, samples.unsqueeze(1), **options)
    assert torch.equal(ours, plain.view_as(ours)), sigma
print("equal")
"""
POOLED = """
import contextlib
import torch
from torch.nn import functional as F

torch.cuda.device_of = lambda tensor: contextlib.nullcontext()  # there is none here
import smoothcert
from smoothcert.models.conv_triton import PooledConv

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
print("close")
"""
RESIDUAL = """
import contextlib
import torch
from triton.runtime import interpreter

torch.cuda.device_of = lambda tensor: contextlib.nullcontext()  # there is none here
from smoothcert.engine.deploy import fold
from smoothcert.models import create_model, residual_triton
from smoothcert.models.resnet_triton import ResidualNetwork, has_kernels

patch = interpreter._patch_lang_tensor
def patched(tensor, scope):
    patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())  # NumPy 2.4 takes no int(array)
interpreter._patch_lang_tensor = patched
runs, run_stage = [], residual_triton.run_stage
residual_triton.run_stage = lambda *tensors: runs.append(tensors) or run_stage(*tensors)

def network(name, channels):
    model = create_model(name, in_channels=channels)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            for tensor, low in ((module.running_mean, -1), (module.running_var, 1), (module.bias, -1)):
                torch.nn.init.uniform_(tensor, low, low + 2)
    assert not has_kernels(model.network)  # not folded
    return fold(model).network

torch.manual_seed(0)
assert not has_kernels(network("lenet", 1)) and not has_kernels(network("resnet50", 3))
assert not has_kernels(network("cifar_resnet20", 5))
color, gray = network("cifar_resnet20", 3), network("cifar_resnet20", 1)
with torch.no_grad():
    # Counts that leave programs, and sides that leave tiles, partly empty; sides that are odd in the last stage.
    for plain, shape, kernels in (
        (color, (3, 3, 32, 32), 3), (gray, (9, 1, 8, 16), 3), (gray, (2, 1, 28, 28), 0)
    ):
        assert has_kernels(plain)
        runs.clear()
        x = torch.randn(shape)
        ours = ResidualNetwork(plain)
        torch.testing.assert_close(ours(x), plain(x), rtol=1e-5, atol=1e-5)
        assert len(runs) == kernels
    # The last programs and tiles first: nothing may rest on what others have or have not done.
    interpreter.range = lambda *bounds: reversed(range(*bounds))
    x, ours = torch.randn(3, 3, 24, 40), ResidualNetwork(color)
    torch.testing.assert_close(ours(x), color(x), rtol=1e-5, atol=1e-5)
    # Stage by stage, where nothing is averaged, in every way of cutting the products.
    for step in (1, 2):
        for width, tile in residual_triton.TILES.items():
            if (step, width) != (1, 16):  # patches of the stem would be of 48 values
                residual_triton.TILES[width] = tile._replace(step=step)
        ours, x = ResidualNetwork(color).stages, torch.randn(5, 3, 16, 16)
        images, x = torch.nn.functional.pad(x.permute(0, 2, 3, 1), (0, 1)), color.conv1(x).relu()
        for number in range(3):
            images, x = ours[number](images), color.get_submodule(f"layer{number + 1}")(x)
            torch.testing.assert_close(images.permute(0, 3, 1, 2), x, rtol=1e-5, atol=1e-5)
print("close")
"""


# Triton comes with torch for CUDA alone; elsewhere there is no such test, rather than one that is always skipped.
if importlib.util.find_spec("triton"):

    def test_the_grid_kernel_is_the_plain_definition_to_the_bit():
        assert interpreted(GRID) == "equal"

    def test_the_pooling_kernel_is_convolution_and_pooling():
        assert interpreted(POOLED) == "close"

    def test_the_residual_kernels_are_the_network():
        assert interpreted(RESIDUAL) == "close"

    def interpreted(code):
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()
