"""Deployed forms: folded networks are the same function up to rounding."""

import contextlib
import functools

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import smoothcert
from smoothcert.checkpoints.published import NORMALIZATIONS
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.smoothing.cuda_graphs import Replayed, capturing
from smoothcert.smoothing.deploy import fold, operations, worth_compiling


def random_network(name):
    torch.manual_seed(1)
    mean, std = ((0.3,), (0.6,)) if name == "lenet" else NORMALIZATIONS["cifar10"]
    model = smoothcert.create_model(name, 10, mean=mean, std=std).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.5, 2.0)
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.uniform_(module.bias, -0.2, 0.2)
    return model


@pytest.mark.parametrize(("name", "size"), [("lenet", 28), ("cifar_resnet20", 32), ("resnet50", 64)])
def test_folding_keeps_the_function(name, size):
    model = random_network(name)
    x = torch.rand(8, model.in_channels, size, size)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    folded = fold(model)
    with torch.no_grad():
        expected, found = model.double()(x.double()), folded.double()(x.double())
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in folded.modules())
    assert all(torch.equal(before[key], value.float()) for key, value in model.state_dict().items() if "num" not in key)


@pytest.mark.parametrize(("name", "samples"), [("lenet", 4096), ("cifar_resnet20", 512)])
def test_folded_votes_agree_except_where_scores_are_nearly_equal(name, samples):
    model = random_network(name)
    shape = (model.in_channels, *(model.image_size or (32, 32)))
    noisy = torch.rand(shape) + 0.5 * torch.randn(samples, *shape)
    plain, folded = (
        torch.cat([smoothed.scores(part) for part in noisy.split(256)])
        for smoothed in (smoothcert.SmoothedClassifier(model, 0.5, 10, form=form) for form in ("plain", "folded"))
    )
    first, second = plain.topk(2, dim=1).values.T
    moved = plain.argmax(dim=1) != folded.argmax(dim=1)
    assert bool((first - second < 1e-4)[moved].all())
    assert (plain - folded).abs().max() < 5e-5, "scores further apart cannot change their order"


def test_the_form_is_part_of_the_settings(trained_lenet, mini, tmp_path):
    for form in ("plain", "folded"):
        smoothed = smoothcert.SmoothedClassifier(trained_lenet, 0.25, 10, form=form)
        smoothcert.certify_dataset(smoothed, mini, tmp_path / f"{form}.tsv", n=50, indices=[0])
        assert smoothcert.read_results(tmp_path / f"{form}.tsv").about["settings"]["form"] == form
    with pytest.raises(UsageError, match="form was plain, now folded"):
        smoothcert.certify_dataset(smoothed, mini, tmp_path / "plain.tsv", n=50, indices=[0])
    with pytest.raises(UsageError, match="did you mean 'folded'"):
        smoothcert.SmoothedClassifier(trained_lenet, 0.25, form="foldet")


def test_voting_does_not_change_the_state_dict(trained_lenet, mini):
    smoothed = smoothcert.SmoothedClassifier(trained_lenet, 0.25, 10, form="folded")
    before = list(smoothed.state_dict())
    smoothed.counts(mini.floats([3])[0], 64)
    assert list(smoothed.state_dict()) == before


def test_a_moved_model_is_deployed_again():
    smoothed = smoothcert.SmoothedClassifier(smoothcert.create_model("lenet"), 0.25, 10, form="folded")
    for device in ("cpu", "meta"):  # a device without values
        noisy = torch.zeros(2, 1, 28, 28, device=device)
        assert smoothed.to(device).scores(noisy).device.type == device


def test_folded_bf16_casts_once(trained_lenet, mini):
    image = mini.floats([3])[0]
    full = smoothcert.SmoothedClassifier(trained_lenet, 0.25, 10, form="folded").counts(image, 256)
    half = smoothcert.SmoothedClassifier(trained_lenet, 0.25, 10, form="folded", precision="bf16").counts(image, 256)
    assert (full - half).abs().max() < 20
    noisy = mini.floats([3, 4])
    full, half = (
        smoothcert.SmoothedClassifier(trained_lenet, 0.25, 10, form="folded", precision=precision).scores(noisy)
        for precision in ("fp32", "bf16")
    )
    assert half.dtype == torch.bfloat16
    assert not torch.equal(full, half.float())


@pytest.mark.slow
def test_pinned_votes_match_the_folded_form(trained_lenet, mini):
    image, votes = mini.floats([3])[0], {}
    for form in ("folded", "pinned"):
        votes[form] = smoothcert.SmoothedClassifier(trained_lenet, 0.5, 10, form=form).counts(image, 512)
    assert (votes["folded"] - votes["pinned"]).abs().max() <= 2


def test_a_network_that_cannot_be_compiled_is_refused(trained_lenet, mini, monkeypatch):
    def broken(*_, **options):
        raise RuntimeError("no C compiler")

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=broken))
    flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    for model, form in ((trained_lenet, "folded"), (flat, "plain")):
        smoothed = smoothcert.SmoothedClassifier(model, 0.25, 10, form="pinned")
        with pytest.raises(SmoothcertError, match=f"cannot be compiled .*no C compiler.*; choose `form='{form}'`"):
            smoothed.counts(mini.floats([3])[0], 64)


def test_a_network_that_cannot_be_captured_is_called_directly():
    x = torch.rand(4, 3, device="cuda" if torch.cuda.is_available() else "cpu")
    network = Replayed(lambda x: x * float(x.sum()))  # the host reads a value
    with pytest.warns(UserWarning, match="slower than a CUDA graph") as warned:
        scores = [network(batch).clone() for batch in (x, x + 1)]
    assert torch.equal(torch.stack(scores), torch.stack([x * float(x.sum()), (x + 1) * float((x + 1).sum())]))
    assert len(warned) == 1


class FakeStream:
    """A stream of a missing device, and the contexts of `torch.cuda` that track the current stream."""

    current = "before"
    device = torch.device("cuda", 1)

    @classmethod
    @contextlib.contextmanager
    def context(cls, stream):
        before, cls.current = cls.current, stream
        try:
            yield
        finally:
            cls.current = before

    @classmethod
    @contextlib.contextmanager
    def graph(cls, graph, stream):
        """As torch.cuda.graph: after an error inside, the stream is not restored."""
        before, cls.current = cls.current, stream
        yield
        cls.current = before


def test_a_failed_capture_restores_the_stream(monkeypatch):
    devices = []
    monkeypatch.setattr(torch.cuda, "device", lambda device: devices.append(device) or contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "stream", FakeStream.context)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: FakeStream.current)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "graph", FakeStream.graph)
    stream = FakeStream()
    with capturing(None, stream):
        assert FakeStream.current is stream
    with pytest.raises(RuntimeError, match="not permitted"), capturing(None, stream):
        raise RuntimeError("operation not permitted when stream is capturing")
    assert FakeStream.current == "before"
    assert devices == [stream.device] * 2


@pytest.mark.parametrize(
    ("name", "shape"), [("lenet", (1, 28, 28)), ("cifar_resnet8", (3, 32, 32)), ("resnet50", (3, 64, 64))]
)
def test_operations_match_torch(name, shape):
    model = smoothcert.create_model(name, in_channels=shape[0]).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, *shape))
    assert operations(model, shape) == counter.get_total_flops()
    assert operations(smoothcert.Ensemble([model, model]), shape) == 2 * counter.get_total_flops()


@pytest.mark.parametrize(
    ("name", "shape", "folded", "compiled", "seconds"),
    [("lenet", (1, 28, 28), 30.0e6, 35.2e6, 27), ("cifar_resnet20", (3, 32, 32), 1.866e6, 2.044e6, 12)],
)
def test_compiling_pays_off_at_the_measured_rates(name, shape, folded, compiled, seconds):
    """Samples per second in both forms and compile times are from benchmarks/raw/h200-2026-11-16.txt."""
    enough = seconds / (1 / folded - 1 / compiled) * operations(smoothcert.create_model(name), shape)
    assert not worth_compiling(enough / 2, kernels=True)
    assert worth_compiling(2 * enough, kernels=True)
    assert worth_compiling(enough / 2, kernels=False), "PyTorch's layers gain more"


def test_votes_follow_changes_of_the_weights(mini):
    model, image = smoothcert.create_model("lenet", 10), mini.floats([3])[0]
    smoothed = smoothcert.SmoothedClassifier(model, 0.25, 10, form="folded")
    first = smoothed.counts(image, 64)
    assert torch.equal(smoothed.counts(image, 64), first)
    optimizer = torch.optim.SGD(model.parameters(), lr=5.0)
    model(mini.floats([3, 4, 5])).square().sum().backward()
    optimizer.step()
    second = smoothed.counts(image, 64)
    assert not torch.equal(second, first)
    assert torch.equal(second, smoothcert.SmoothedClassifier(model, 0.25, 10, form="folded").counts(image, 64))
    smoothed.model = other = smoothcert.create_model("lenet", 10)
    third = smoothed.counts(image, 64)
    assert torch.equal(third, smoothcert.SmoothedClassifier(other, 0.25, 10, form="folded").counts(image, 64))


def test_folding_refuses_hooks_and_parametrizations(mini):
    """Folding removes BatchNorm, so its hook would never be called."""
    hooked = smoothcert.create_model("cifar_resnet20", 10)
    hooked.network.bn1.register_forward_hook(lambda module, inputs, output: -output)
    normed = smoothcert.create_model("lenet", 10)
    torch.nn.utils.parametrizations.weight_norm(normed.network.conv1)
    for model, name, image in (
        (hooked, "network.bn1", torch.rand(3, 32, 32)),
        (normed, "network.conv1", mini.floats([3])[0]),
    ):
        with pytest.raises(UsageError, match=f"`{name}`; choose `form='plain'`"):
            smoothcert.SmoothedClassifier(model, 0.25, 10, form="folded").counts(image, 8)
        assert smoothcert.SmoothedClassifier(model, 0.25, 10, micro_batch=8).counts(image, 8).sum() == 8
