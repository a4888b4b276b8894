"""Run the checks that need a CUDA device: kernels against references, graphs and compiled steps against eager ones.

python scripts/check_gpu.py [--parts steps votes] [--networks lenet] [--compiled catrs]
"""

import argparse
import copy
import gc
import itertools
import warnings
from functools import partial

import torch
from known_answers import wrong_answers
from torch import nn
from torch.nn import functional as F

import smoothcert
from smoothcert.certification.dataset import certify_sequentially
from smoothcert.kernels import triton_kernels
from smoothcert.methods import METHODS, create_method
from smoothcert.philox import Purpose, normal, uniform
from smoothcert.runtime.environment import choose_device
from smoothcert.smoothing.deploy import fold
from smoothcert.smoothing.noising import add_noise
from smoothcert.smoothing.precision import numerics
from smoothcert.statistics.integer_noise import grid_noise
from smoothcert.statistics.noise import UniformNoise
from smoothcert.statistics.stopping import TableStop
from smoothcert.training import compiled_loss, stepper
from smoothcert.training.batches import ResidentData
from smoothcert.training.graph_stepper import GraphStepper
from smoothcert.training.stepper import Stepper

DEVICE = torch.device("cuda")
# Channels, image side, images, layers, and the largest relative error. A float32 sum that rounds to the other of two
# neighboring bfloat16 values changes more and more values in later layers, so deeper stacks need a larger tolerance.
LAYERS = (
    *((16, 32, 256, 1, 2**-8), (32, 16, 256, 1, 2**-8), (64, 8, 256, 1, 2**-8)),
    *((16, 32, 256, 2, 2**-5), (32, 16, 256, 2, 2**-5), (64, 8, 256, 2, 2**-5)),
    *((16, 12, 33, 5, 2**-3), (32, 6, 33, 5, 2**-3), (64, 10, 33, 5, 2**-3)),
)
HALVINGS = (16, 32, 256, 2**-8), (32, 16, 256, 2**-8), (16, 12, 33, 2**-8)
failures = []


def check(what, error, limit):
    print(f"{'ok  ' if error <= limit else 'FAIL'} {what}: {error:.3g} (at most {limit:g})", flush=True)
    if not error <= limit:
        failures.append(what)


def check_noise():
    check("wrong known answers of the generator", wrong_answers(DEVICE), 0)
    seed, sample, image = 2**40 + 17, torch.arange(4096).view(64, 64), torch.arange(64).view(64, 1) + 2**31
    ours = normal(seed, (sample.to(DEVICE), image.to(DEVICE), Purpose.CERTIFY), 785, device=DEVICE)
    check("normals against the CPU", float((ours.cpu() - normal(seed, (sample, image, 0), 785)).abs().max()), 1e-5)
    even = uniform(seed, (sample.to(DEVICE), 3, Purpose.AUGMENTATION), 5, device=DEVICE).cpu()
    check(
        "uniforms against the CPU", float((even - uniform(seed, (sample, 3, Purpose.AUGMENTATION), 5)).abs().max()), 0
    )
    inputs, rows = torch.rand(5, 3, 32, 32), torch.randint(5, (300,))
    indices, samples = torch.arange(5) * 1000, torch.randint(2**32 - 1, (300,))
    options = {"sigma": 0.5, "seed": seed, "purpose": 0}
    placed = (tensor.to(DEVICE) for tensor in (inputs, rows, indices, samples))
    fused = triton_kernels().noisy_copies(*placed, dtype=torch.float32, **options)
    plain = inputs[rows] + 0.5 * normal(seed, (samples, indices[rows], 0), 3072).view(300, 3, 32, 32)
    check("fused noise against the CPU", float((fused.cpu() - plain).abs().max()), 1e-5)


def check_other_noises():
    """Check that uniform noise and the integer noise of sound certification are bit-identical to the CPU's."""
    inputs, rows = torch.randint(256, (5, 3, 32, 32)).float() / 255, torch.randint(5, (300,))
    indices, samples = torch.arange(5) * 1000, torch.randint(2**32 - 1, (300, 2))
    for noise in (UniformNoise(0.5), grid_noise(0.25, 3072), grid_noise(1.0, 3072)):
        plain = add_noise(noise, inputs, rows, indices, samples, seed=2**40 + 17, purpose=0)
        placed = (tensor.to(DEVICE) for tensor in (inputs, rows, indices, samples))
        ours = add_noise(noise, *placed, seed=2**40 + 17, purpose=0)
        check(f"{noise.name} noise of {noise.sigma} against the CPU", float((ours.cpu() - plain).abs().max()), 0)


@torch.no_grad()
def check_convolution():
    """Compare the fused convolution, ReLU and pooling with separate layers in double precision."""
    from smoothcert.models.cuda.pooled_convolution import PooledConv

    torch.manual_seed(0)
    for channels, filters, size, side in ((1, 20, 5, 28), (20, 50, 5, 12), (3, 7, 3, 15)):
        conv = torch.nn.Conv2d(channels, filters, size).to(DEVICE, torch.bfloat16)
        x = torch.randn(1000, channels, side, side, device=DEVICE, dtype=torch.bfloat16)
        exact = F.max_pool2d(F.relu(F.conv2d(x.double(), conv.weight.double(), conv.bias.double())), 2)
        error = ((PooledConv(conv)(x) - exact).abs() / exact.clamp(min=1)).max()
        check(f"convolution of {channels} channels with pooling, rounded once", float(error), 2**-8)
        flat = PooledConv(conv, flat=True)(x)
        check("the same, laid out flat", float((flat - PooledConv(conv)(x).flatten(1)).abs().max()), 0)
        conv.weight[0, 0, 0, 0] = torch.nan
        check("outputs of a filter with NaN that are not NaN", float((~PooledConv(conv)(x)[:, 0].isnan()).sum()), 0)


@torch.no_grad()
def check_resident():
    """Compare stages of a CIFAR ResNet that stay in shared memory with separate layers in double precision."""
    from smoothcert.models.cuda.resident_network import ResidentNetwork, has_kernels

    torch.manual_seed(0)
    model = smoothcert.create_model("cifar_resnet20").to(DEVICE).eval()
    network = model.network
    for norm in network.modules():
        if isinstance(norm, nn.BatchNorm2d):
            for tensor, low in (
                (norm.weight, 0.1),
                (norm.running_var, 1),
                (norm.bias, -0.5),
                (norm.running_mean, -0.5),
            ):
                nn.init.uniform_(tensor, low, low + 1)  # values stay small
    assert has_kernels(network)
    folded = fold(model).to(torch.bfloat16)
    kernels = ResidentNetwork(network, model.normalize.std, folded.network)

    def layer(x, conv, norm):  # weights are rounded, BatchNorm is not folded
        x = F.conv2d(x, rounded(conv.weight), stride=conv.stride, padding=conv.padding)
        return copy.deepcopy(norm).double()(x)

    images = torch.randn(1001, 3, 32, 32, device=DEVICE, dtype=torch.bfloat16)
    expected = rounded(F.relu(layer(images.double(), network.conv1, network.bn1)))
    for number, stage in enumerate(kernels.stages):
        given = images if number == 0 else expected.bfloat16()
        for block in network.get_submodule(f"layer{number + 1}"):
            shortcut = expected if block.downsample is None else rounded(layer(expected, *block.downsample))
            inner = rounded(F.relu(layer(expected, block.conv1, block.bn1)))
            expected = rounded(F.relu(layer(inner, block.conv2, block.bn2) + shortcut))
        ours, again = (stage(given.permute(0, 2, 3, 1)).permute(0, 3, 1, 2) for _ in range(2))
        errors = (ours - expected).abs() / expected.clamp(min=1)
        # Float32 sums sometimes round to the other neighboring bfloat16 value, and later blocks amplify that.
        check(f"stage {number + 1}, rounded once per convolution, on average", float(errors.mean()), 2**-9)
        check(f"stage {number + 1}, rounded once per convolution, at worst", float(errors.max()), 2**-4)
        check(f"values of stage {number + 1} that differ the second time", float((again != ours).sum()), 0)
    images[7, 0, 0, 0] = torch.nan
    known = ~kernels(images).isnan().all(dim=1)
    check("images whose scores hide or spread NaN", float((known == (torch.arange(1001, device=DEVICE) == 7)).sum()), 0)


@torch.no_grad()
def check_bottleneck():
    """Compare the fused convolution, bias, shortcut and ReLU with separate layers in double precision."""
    from smoothcert.kernels.bottleneck_convolution import convolve
    from smoothcert.models.cuda.bottleneck import Convolution

    torch.manual_seed(0)
    for channels, filters, size, stride, side, adding in (
        (3, 64, 7, 2, 224, False),
        (64, 64, 3, 1, 56, False),
        (128, 128, 3, 2, 56, False),
        (256, 512, 1, 2, 57, False),
        (64, 256, 1, 1, 56, True),
        (512, 2048, 1, 1, 7, True),
    ):
        conv = torch.nn.Conv2d(channels, filters, size, stride, padding=size // 2).to(DEVICE, torch.bfloat16)
        x = torch.randn(5, channels, side, side, device=DEVICE, dtype=torch.bfloat16)
        exact = F.conv2d(x.double(), conv.weight.double(), conv.bias.double(), stride, size // 2)
        shortcut = torch.randn_like(exact).bfloat16() if adding else None
        expected = F.relu(exact if shortcut is None else exact + shortcut)
        last = None if shortcut is None else shortcut.permute(0, 2, 3, 1).contiguous()
        ours = Convolution(conv)(x.permute(0, 2, 3, 1), last).permute(0, 3, 1, 2)
        error = ((ours - expected).abs() / expected.clamp(min=1)).max()
        check(f"convolution {channels} to {filters}, {size}x{size}, stride {stride}, rounded once", float(error), 2**-8)
    for width, given, side in ((128, 256, 57), (256, 512, 28), (512, 1024, 14)):
        x, weight, bias = pointwise_tensors((side + 1) // 2, width, 4 * width, given)
        shortcut = torch.randn(5, side, side, given, device=DEVICE).bfloat16()
        exact = products(torch.cat([x, shortcut[:, ::2, ::2]], 3), weight, bias)
        error = ((convolve(x, weight, bias, shortcut, 1) - F.relu(exact)).abs() / exact.clamp(min=1)).max()
        check(f"convolution {width} to {4 * width}, shortcut of {given} projected, rounded once", float(error), 2**-8)


@torch.no_grad()
def check_chains():
    """Compare the fused convolutions of two adjacent bottlenecks (a chain) with double precision."""
    from smoothcert.kernels.pointwise import CHAINS, chain

    torch.manual_seed(0)
    for (width, next_width, given), tile in CHAINS.items():
        x, *last = pointwise_tensors(27, width, 4 * width, given)
        _, *following = pointwise_tensors(1, 4 * width, next_width)
        shortcut = torch.randn(5, 27, 27, given or 4 * width, device=DEVICE).bfloat16()
        conv = torch.nn.Conv2d(width, width, 3, padding=1, device=DEVICE, dtype=torch.bfloat16)
        middle = [conv.weight.permute(0, 2, 3, 1).contiguous(), conv.bias.float()] if tile.ahead else []
        inputs = x
        if middle:
            exact = F.conv2d(x.permute(0, 3, 1, 2).double(), conv.weight.double(), conv.bias.double(), padding=1)
            inputs = rounded(F.relu(exact)).permute(0, 2, 3, 1)
        joined, added = (torch.cat([inputs, shortcut], 3), 0) if given else (inputs, shortcut)
        wide, narrow = chain(x, shortcut, middle, last, following)
        name = f"chain of {width}, {4 * width} and {next_width}" + (", shortcut projected" if given else "")
        # The output of the 3x3 convolution may round the other way, which hardly changes the wide images.
        limits = 2**-7 if middle else 2**-8, 2**-8
        exact = F.relu(products(joined, *last) + added), F.relu(products(wide, *following))
        for what, ours, expected, limit in zip(("wide", "narrow"), (wide, narrow), exact, limits, strict=True):
            error = ((ours - expected).abs() / expected.clamp(min=1)).max()
            check(f"{name}: the {what} images, rounded once", float(error), limit)
        known = [~images.isnan() for images in chain(x * torch.nan, shortcut, middle, last, following)]
        check(f"{name}: NaN stays", float(sum(images.sum() for images in known)), 0)


def pointwise_tensors(side, channels, filters, given=0):
    """Return images, and weight and bias of a 1x1 convolution with `given` more channels for the shortcut."""
    images = torch.randn(5, side, side, channels, device=DEVICE).bfloat16()
    weight = torch.randn(filters, 1, 1, channels + given, device=DEVICE) / (channels + given) ** 0.5
    return images, weight.bfloat16(), torch.randn(filters, device=DEVICE)


def products(images, weight, bias):
    """Apply a 1x1 convolution to images [count, height, width, channels] in double precision."""
    return images.double() @ weight.flatten(1).double().T + bias.double()


class Rounded(torch.autograd.Function):
    """Round values and their gradients to bfloat16."""

    @staticmethod
    def forward(ctx, x):
        """Round values."""
        return rounded(x)

    @staticmethod
    def backward(ctx, gradient):
        """Round gradients."""
        return rounded(gradient)


def exact_layer(x, conv, norm, added=0, rectify=F.relu):
    """Apply a layer of a residual network in double precision, rounded where the kernels round."""
    keep, options = Rounded.apply, {"stride": conv.stride, "padding": conv.padding}
    if norm.training:
        return keep(rectify(norm(keep(conv(x))) + added))
    factor = norm.weight * (norm.running_var + norm.eps).rsqrt()
    filters, bias = keep(conv.weight * factor.view(-1, 1, 1, 1)), norm.bias - norm.running_mean * factor
    return keep(rectify(F.conv2d(x, filters, bias, **options) + added))


def exact_layers(x, layers, shortcut):
    """Apply the layers of residual blocks; if their number is odd, the first one precedes the blocks."""
    for number, (conv, norm) in enumerate(layers):
        if (len(layers) - number) % 2:
            x = exact_layer(x, conv, norm, 0 if shortcut is None else shortcut)
        else:
            shortcut, x = x, exact_layer(x, conv, norm)
    return x


def exact_halving(x, layers, _):
    """Apply a layer and a projection that halve images."""
    (conv, norm), projection = layers
    straight = exact_layer(x, *projection, rectify=lambda x: x)
    return torch.cat([F.relu(exact_layer(x, conv, norm, rectify=lambda x: x)), straight], dim=1)


def layer_gradients(apply, layers, x, shortcut, weights):
    """Return the output of layers, the gradients of inputs and parameters, and the running statistics."""
    layers = copy.deepcopy(layers)
    x, shortcut = x.detach().requires_grad_(), shortcut.detach().requires_grad_()
    made = apply(x, layers, shortcut if len(layers) % 2 else None)
    (made * weights.to(made.dtype)).sum().backward()
    found = {"values": made.detach(), "inputs": x.grad}
    if len(layers) % 2:
        found["shortcut"] = shortcut.grad
    for name in ("0.weight", "1.weight", "1.bias"):
        found[name] = torch.cat([layer.get_parameter(name).grad.flatten() for layer in layers])
    for name in ("1.running_mean", "1.running_var"):
        found[name] = torch.cat([layer.get_buffer(name) for layer in layers])
    return found


def compare_layers(what, convs, apply, exactly, limit, *shapes):
    """Compare outputs, gradients and statistics of layers with exact ones, and between two identical runs."""
    exact = nn.ModuleList(nn.ModuleList((conv, nn.BatchNorm2d(conv.out_channels))) for conv in convs)
    exact = exact.to(DEVICE).bfloat16().double()
    for _, norm in exact:
        for tensor, low in ((norm.weight, 0.5), (norm.bias, -0.5), (norm.running_mean, -0.5)):
            nn.init.uniform_(tensor, low, low + 1)
    ours = copy.deepcopy(exact).float().to(memory_format=torch.channels_last)
    images, shortcut, weights = (
        rounded(torch.randn(shape, device=DEVICE)).contiguous(memory_format=torch.channels_last) for shape in shapes
    )
    for mode in ("training", "folded"):
        exact.train(mode == "training"), ours.train(mode == "training")
        expected = layer_gradients(exactly, exact, images, shortcut, weights)
        given = ours, images.bfloat16(), shortcut.bfloat16(), weights
        first, second = (layer_gradients(apply, *given) for _ in range(2))
        for name, value in first.items():
            error = (value.double() - expected[name]).norm() / expected[name].norm()
            check(f"{mode} {what}: {name}", float(error), limit)
        different = sum(int((first[name] != second[name]).sum()) for name in first)
        check(f"{mode} {what}: values that differ the second time", different, 0)


def check_layers(channels, side, count, number, limit):
    """Compare residual layers with double precision, rounded where the kernels round."""
    from smoothcert.models.cuda.training_network import run_layers

    torch.manual_seed(0)
    convs = [nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(number)]
    shape, what = (count, channels, side, side), f"layers of {channels} channels, {number}"
    compare_layers(what, convs, run_layers, exact_layers, limit, shape, shape, shape)


def check_attack(channels, side):
    """Compare layers for attacks with double precision, and deep stacks of them with the layers for training."""
    from smoothcert.kernels import resident_attack
    from smoothcert.models.cuda.training_network import run_layers

    errors = resident_attack.deviations(channels, resident_attack.SHAPES[channels], DEVICE)
    for name, error, limit in zip(
        ("values", "inputs", "shortcut"), errors, resident_attack.MOST_DEVIATION, strict=True
    ):
        check(f"self-check of the attack on {channels} channels: {name}", float(error), limit)
    resident_attack._usable = True  # compare them even if they were found wrong
    fits, fitting = resident_attack.fits, []
    torch.manual_seed(0)
    for number, limit in ((1, 2**-8), (5, 2**-7), (37, None)):
        convs = [nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(number)]
        layers = [nn.ModuleList((conv, nn.BatchNorm2d(channels))) for conv in convs]
        layers = nn.ModuleList(layers).to(DEVICE).bfloat16().double().eval().requires_grad_(False)
        for _, norm in layers:
            for tensor, low in ((norm.weight, 0.2), (norm.bias, -0.5), (norm.running_mean, -0.5)):
                nn.init.uniform_(tensor, low, low + 1)
        ours, shape = copy.deepcopy(layers).float(), (257, channels, side, side)
        tensors = [rounded(torch.randn(shape, device=DEVICE)) for _ in range(3)]
        x, added, gradient = (t.contiguous(memory_format=torch.channels_last) for t in tensors)
        for shortcut in (added, None):
            exact = input_gradients(exact_layers, layers, x, shortcut, gradient)
            given = ours, x.bfloat16(), None if shortcut is None else shortcut.bfloat16(), gradient
            fitting.clear()
            resident_attack.fits = lambda *layers: fitting.append(fits(*layers)) or fitting[-1]
            first, second = (input_gradients(run_layers, *given) for _ in range(2))
            resident_attack.fits = lambda *layers: False
            layered = input_gradients(run_layers, *given)
            resident_attack.fits = fits
            what = f"attack on {number} layers of {channels} channels" + (", no shortcut" if shortcut is None else "")
            check(f"{what}: passes, of two, without the kernel", 2 - fitting.count(True), 0)
            different = sum(int((a != b).sum()) for a, b in zip(first, second, strict=True))
            check(f"{what}: values that differ the second time", different, 0)
            names = ("values", "inputs", "shortcut")[: len(first)]
            for name, value, other, expected in zip(names, first, layered, exact, strict=True):
                error, others = (float((found - expected).norm() / expected.norm()) for found in (value, other))
                check(f"{what}: {name}", error, 1.2 * others + 2**-10 if limit is None else limit)


def input_gradients(apply, layers, x, shortcut, gradient):
    """Return the output of layers and the gradients of their inputs, in double precision."""
    inputs = [tensor.detach().requires_grad_() for tensor in (x, shortcut) if tensor is not None]
    made = apply(inputs[0], layers, inputs[1] if len(inputs) > 1 else None)
    found = torch.autograd.grad(made, inputs, gradient.to(made.dtype))
    return [tensor.detach().double() for tensor in (made, *found)]


def check_halving(channels, side, count, limit):
    """Compare the layers that halve images with double precision, rounded where the kernels round."""
    from smoothcert.models.cuda.training_network import halve

    torch.manual_seed(0)
    convs = [nn.Conv2d(channels, 2 * channels, size, 2, padding=size // 2, bias=False) for size in (3, 1)]
    given, made = (count, channels, side, side), (count, 4 * channels, side // 2, side // 2)
    halved = lambda x, layers, _: torch.cat(halve(x, *layers), dim=1)  # noqa: E731
    compare_layers(f"halving of {channels} channels, 1", convs, halved, exact_halving, limit, given, given, made)


def rounded(x):
    return x.bfloat16().double()


@torch.no_grad()
def check_replay():
    """Check that a replayed CUDA graph returns the scores of the network it was captured from."""
    for name, shape in (("lenet", (1, 28, 28)), ("cifar_resnet20", (3, 32, 32))):
        torch.manual_seed(0)
        model = smoothcert.create_model(name).to(choose_device("cuda")).eval()
        smoothed = smoothcert.SmoothedClassifier(model, 1.0, 10, form="folded", precision="bf16")
        batches = torch.rand(3, 632, *shape, device=DEVICE)
        ours = torch.stack([smoothed.scores(batch) for batch in batches])
        plain = torch.stack([smoothed._base.network(batch.bfloat16()) for batch in batches])
        check(f"scores of {name} that differ in a graph", float((ours != plain).sum()), 0)


def check_stopping():
    """Check that images certified together get the same votes as each image certified alone."""
    torch.manual_seed(0)
    model = smoothcert.create_model("lenet").to(DEVICE).eval()
    data = smoothcert.load_dataset("mnist-mini", "test")
    smoothed = smoothcert.SmoothedClassifier(model, 1.0, 10, form="folded", precision="bf16")
    options = {"rule": TableStop(radii=(0.25, 0.5)), "n": 20_000}
    together = certify_sequentially(smoothed, data, indices=range(40), **options)
    alone = [certify_sequentially(smoothed, data, indices=[index], **options)[0] for index in range(40)]
    different = sum(list(a.estimation) != list(b.estimation) for a, b in zip(together, alone, strict=True))
    check("images, of 40, whose votes depend on the others", different, 0)


def train(name, network, *, graphs=False, compiled=False, steps=12, rounding=0.0):
    """Return a network's state after some steps in float32, and the sums of its losses.

    `rounding` is the standard deviation of relative random errors in the initial weights.
    """
    torch.manual_seed(0)
    shape = (1, 28, 28) if network == "lenet" else (3, 32, 32)
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(256, (256, *shape), dtype=torch.uint8, generator=generator).to(DEVICE)
    labels = torch.randint(10, (256,), generator=generator).to(DEVICE)
    soft = torch.softmax(torch.randn(256, 10, generator=generator), dim=1).to(DEVICE)
    model = smoothcert.create_model(network, in_channels=shape[0]).to(DEVICE).train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 1 + rounding * torch.randn_like(parameter)
    options = {"num_noises": 2, "attack_steps": 2, "weight": 0.5}
    known = METHODS[name].__dataclass_fields__
    method = create_method(name, 0.25, {key: value for key, value in options.items() if key in known})
    optimizer = torch.optim.SGD(model.parameters(), torch.tensor(0.01, device=DEVICE), momentum=0.9, fused=True)
    augmentation = "none" if network == "lenet" else "crop-flip"
    data = ResidentData(images, labels, soft, augmentation)
    kind = GraphStepper if graphs else Stepper
    run = kind(model, method, optimizer, data, seed=3, precision="fp32")
    if compiled:
        run.compile(32)
    for step in range(steps):
        first = 32 * step % 224
        indices = torch.arange(first, first + 32, device=DEVICE)
        run.set_position(step // 4, step, 0.01 if step < 8 else 0.001)
        run.take_step((indices,), 32)
    return copy.deepcopy(model.state_dict()), run.sums.clone()


def check_steps(networks, compiled):
    """Check that graphs repeat the steps they were captured from, and compiled steps match eager ones up to rounding.

    ReLU and BatchNorm amplify rounding: a rounding error in ResNet-20's weights is 1e-5 after one step and 0.01
    after twelve. So only one compiled step of such a network is compared, with a tolerance for the effect of rounding.
    """
    for network, name in itertools.product(networks, METHODS):
        what, eager = f"{name} on {network}", train(name, network)
        compare(f"{what}, graph against eager", eager, train(name, network, graphs=True))
        if name in compiled:
            ordinary = train(name, network, compiled=True)
            compare(f"{what}, graph against compiled", ordinary, train(name, network, compiled=True, graphs=True))
            steps = 12 if network == "lenet" else 1
            plain, ours = (train(name, network, compiled=way, steps=steps) for way in (False, True))
            moved, _ = apart(plain, train(name, network, steps=steps, rounding=2**-24))
            compare(f"{what}, compiled against eager", plain, ours, 1e-5 + 4 * moved)


def compare(what, expected, given, limit=1e-5):
    weights, losses = apart(expected, given)
    check(f"{what}: weights", weights, limit)
    check(f"{what}: losses", losses, 1e-3)


def apart(expected, given):
    """Return the largest absolute difference between the weights, and the largest relative one between the losses."""
    (weights, sums), (other_weights, other_sums) = expected, given
    differences = [(weights[key].double() - other_weights[key].double()).abs().max() for key in weights]
    return float(torch.stack(differences).max()), float(((sums - other_sums).abs() / sums.abs().clamp(min=1e-3)).max())


def check_votes():
    torch.manual_seed(0)
    model, image = smoothcert.create_model("lenet").eval(), torch.rand(1, 28, 28)
    counts = {"cpu": smoothcert.SmoothedClassifier(model, 0.5, 10).counts(image, 20_000)}
    placed = copy.deepcopy(model).to(DEVICE)
    for form, precision in (
        ("plain", "fp32"),
        ("folded", "fp32"),
        ("compiled", "fp32"),
        ("folded", "bf16"),
        ("compiled", "bf16"),
        ("pinned", "fp32"),
        ("pinned", "bf16"),
    ):
        smoothed = smoothcert.SmoothedClassifier(placed, 0.5, 10, form=form, precision=precision)
        counts[f"{form} {precision}"] = smoothed.counts(image, 20_000)
    for key, votes in counts.items():
        check(
            f"votes of {key} against the CPU, of 20,000",
            float((votes - counts["cpu"]).abs().max()),
            200 if "bf16" in key else 4,
        )


def check_memory():
    """Count votes with 1% of the device's memory, in a batch that does not fit into it."""
    gc.collect()
    torch.cuda.empty_cache()
    held = torch.cuda.memory_reserved() / torch.cuda.get_device_properties(DEVICE).total_memory
    torch.cuda.set_per_process_memory_fraction(held + 0.01)
    smoothed = smoothcert.SmoothedClassifier(
        smoothcert.create_model("lenet").to(DEVICE).eval(), 0.5, 10, micro_batch=4096
    )
    image = torch.rand(1, 28, 28)
    small, large = (smoothed.counts(image, 2**20, batch=batch) for batch in (2**13, 2**20))
    check("votes with a batch beyond memory", float((small - large).abs().max()), 0)
    torch.cuda.set_per_process_memory_fraction(1.0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=("noise", "kernels", "attack", "steps", "votes"),
        help="parts to run (default: all)",
    )
    parser.add_argument(
        "--networks", nargs="*", default=["lenet", "cifar_resnet20"], help="check steps of these networks"
    )
    parser.add_argument("--compiled", nargs="*", default=list(METHODS), help="check compiled steps of these methods")
    args = parser.parse_args()
    # After a fallback, plain execution would be compared with itself, so a fallback is an error.
    warnings.filterwarnings("error", message="Steps run")
    warnings.filterwarnings("error", message="The network is called directly")
    # Use deterministic convolutions: training steps choose the fastest algorithm, which varies from run to run.
    for module in (stepper, compiled_loss):
        module.numerics = lambda precision, device, deterministic: numerics(precision, device)
    for part, checks in {
        "noise": (check_noise, check_other_noises),
        "kernels": (
            check_convolution,
            check_resident,
            *(partial(check_layers, *layers) for layers in LAYERS),
            *(partial(check_halving, *halving) for halving in HALVINGS),
            check_bottleneck,
            check_chains,
        ),
        "attack": [partial(check_attack, channels, 512 // channels) for channels in (16, 32, 64)],
        "steps": (partial(check_steps, args.networks, args.compiled),),
        "votes": (check_replay, check_stopping, check_votes, check_memory),
    }.items():
        if part in (args.parts or (part,)):
            for work in checks:
                work()
    raise SystemExit(len(failures) and f"{len(failures)} failed: {'; '.join(failures)}")
