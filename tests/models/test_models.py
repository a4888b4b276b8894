import pytest
import torch
from torch.nn import functional as F

import smoothcert
from smoothcert import kernels
from smoothcert.errors import UsageError
from smoothcert.models import Normalize, build_user_model
from smoothcert.models.pooled_convolution import banded_conv_relu_pool, blocked_conv_relu_pool, conv_relu_pool


@pytest.mark.parametrize(
    ("name", "classes", "parameters", "shape"),
    [
        ("lenet", 10, 431_080, (1, 28, 28)),
        ("cifar_resnet20", 10, 272_474, (3, 32, 32)),
        ("cifar_resnet110", 10, 1_730_714, (3, 32, 32)),
        ("cifar_resnet110", 100, 1_736_564, (3, 32, 32)),
        ("resnet50", 1000, 25_557_032, (3, 224, 224)),
    ],
)
def test_the_published_networks(name, classes, parameters, shape):
    model = smoothcert.create_model(name, classes)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert model.eval()(torch.rand(2, *shape)).shape == (2, classes)


def test_resnet_initialization():
    torch.manual_seed(0)
    network = smoothcert.create_model("cifar_resnet110").network
    weight = network.layer3[4].conv2.weight
    assert float(weight.detach().std()) == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.02)
    assert bool((network.bn1.weight == 1).all() & (network.bn1.bias == 0).all())


def test_shortcuts_are_projections_only_where_the_shape_changes():
    network = smoothcert.create_model("cifar_resnet20").network
    with_projection = [name for name, _ in network.named_modules() if name.endswith("downsample")]
    assert with_projection == ["layer2.0.downsample", "layer3.0.downsample"]
    bottlenecks = smoothcert.create_model("resnet50").network
    assert bottlenecks.layer2[0].conv2.stride == (2, 2), "the stride sits in the 3x3 convolution"
    assert [len(getattr(bottlenecks, f"layer{i}")) for i in (1, 2, 3, 4)] == [3, 4, 6, 3]


def test_normalisation_is_the_first_layer_and_saved():
    model = smoothcert.create_model("cifar_resnet8", mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4)).eval()
    x = torch.rand(2, 3, 32, 32)
    by_hand = (x - torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)) / torch.tensor([0.2, 0.3, 0.4]).view(3, 1, 1)
    assert torch.allclose(model(x), model.network(by_hand), atol=1e-5)
    assert model.state_dict()["normalize.std"].tolist() == pytest.approx([0.2, 0.3, 0.4])
    assert torch.equal(Normalize((1.0, 2.0), (1.0, 2.0))(torch.tensor([[3.0, 4.0]])), torch.tensor([[2.0, 1.0]]))


@pytest.mark.parametrize("product", [blocked_conv_relu_pool, banded_conv_relu_pool])
@pytest.mark.parametrize(("channels", "kernel", "bias"), [(1, 5, True), (3, 5, False), (4, 3, True), (2, 1, True)])
def test_convolution_and_pooling_as_one_product(product, channels, kernel, bias):
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(channels, 7, kernel, bias=bias).double()
    x = torch.randn(3, channels, 11 + kernel, 15 + kernel, dtype=torch.float64, requires_grad=True)
    results = []
    for apply in (lambda: F.max_pool2d(F.relu(conv(x)), 2), lambda: product(x, conv)):
        y = apply()
        (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum().backward()
        results.append([y.detach(), x.grad, conv.weight.grad])
        x.grad = conv.weight.grad = None
    torch.testing.assert_close(*results)


def _identity(channels):
    conv = torch.nn.Conv2d(channels, channels, 1, groups=channels, bias=False)
    torch.nn.init.ones_(conv.weight)
    return conv


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("size", [(8, 8), (9, 7), (2, 3)])
def test_pooling_without_gradients_is_max_pooling(size, layout):
    torch.manual_seed(0)
    x = torch.randn(4, 3, *size).to(memory_format=layout)
    x[1, 2, 0, 1] = torch.nan
    x[2] = 0.5  # ties
    expected = F.relu(F.max_pool2d(x, 2))
    with torch.no_grad():
        assert torch.equal(conv_relu_pool(x, _identity(3)).nan_to_num(7.0), expected.nan_to_num(7.0))


def test_pooling_passes_gradients_as_max_pooling_does_at_ties():
    gradients = []
    for pool in (lambda x: F.relu(F.max_pool2d(x, 2)), lambda x: conv_relu_pool(x, _identity(1))):
        x = torch.ones(1, 1, 4, 4, requires_grad=True)
        pool(x).sum().backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)


def test_lenet_is_plain_convolutions():
    """Same result as the layers applied one by one in the default memory layout."""
    model = smoothcert.create_model("lenet").eval()
    net, x = model.network, torch.rand(3, 1, 28, 28)
    weights = {key: value.contiguous() for key, value in net.state_dict().items()}
    y = torch.nn.functional.conv2d(x, weights["conv1.weight"], weights["conv1.bias"]).relu()
    y = torch.nn.functional.max_pool2d(y, 2)
    y = torch.nn.functional.conv2d(y, weights["conv2.weight"], weights["conv2.bias"]).relu()
    y = torch.nn.functional.max_pool2d(y, 2).reshape(3, 800)
    y = (y @ weights["fc1.weight"].T + weights["fc1.bias"]).relu() @ weights["fc2.weight"].T + weights["fc2.bias"]
    assert torch.allclose(model(x), y, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: smoothcert.create_model("lenett"), "did you mean 'lenet'"),
        (
            lambda: smoothcert.create_model("cifar_resnet20")(torch.zeros(2, 784)),
            r"\[3, height, width\], but got \[784\]",
        ),
        (lambda: smoothcert.create_model("cifar_resnet21"), "6n \\+ 2"),
        (lambda: smoothcert.create_model("lenet", 0), "`num_classes` to be an int from 1 to 10,000,000, but got 0"),
        (
            lambda: smoothcert.create_model("lenet", True),
            "`num_classes` to be of type int or None, but got True",
        ),
        (
            lambda: smoothcert.create_model("lenet", mean=(0.1, 0.2), std=(1.0, 1.0)),
            r"`std` to have one value per channel \(1\), but got 2",
        ),
        (lambda: smoothcert.create_model("lenet", mean=(0.1,), std=(0.0,)), "std"),
        (lambda: smoothcert.adapt_inputs(len), "value_range"),
        (
            lambda: smoothcert.adapt_inputs(len, mean=0.5, std=0.2),
            "one value per channel, with `std` > 0, but got 0.5 and 0.2",
        ),
        (lambda: smoothcert.adapt_inputs(len, value_range=(1, -1)), "low, high"),
    ],
)
def test_bad_requests(call, message):
    with pytest.raises(UsageError, match=message):
        call()


@pytest.mark.parametrize(
    ("triton", "room", "expected"), [(True, 232_448, True), (True, 101_376, False), (False, 232_448, False)]
)
def test_networks_run_by_kernels_where_their_tiles_have_room(monkeypatch, triton, room, expected):
    """As on an H100; on a GeForce RTX; without Triton."""
    monkeypatch.setattr(kernels, "_fitting", None)
    monkeypatch.setattr(kernels, "triton_kernels", lambda: triton)
    monkeypatch.setattr(kernels, "_shared_memory", lambda: room)
    assert kernels.network_kernels() is expected


def test_a_network_that_cannot_be_used_keeps_its_mode():
    network = torch.nn.Sequential(torch.nn.Linear(3, 2))
    with pytest.raises(UsageError, match="cannot score inputs of shape"):
        build_user_model(lambda: network, (5,), 2)
    assert all(module.training for module in network.modules())
