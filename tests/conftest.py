"""Fixtures that tests share, and the settings of a test run."""

import dataclasses
import gzip
import os
import shutil
import signal
from pathlib import Path

import hypothesis
import pytest
import torch

import smoothcert

torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # started in the background; the children would ignore it, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the children
KEPT_DATA = Path(__file__).parent / "data"

# CI must be reproducible; other runs explore new examples. No deadline: the machine may be busy.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.load_profile("ci" if os.environ.get("SMOOTHCERT_NO_SKIPS") else "explore")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Turn skips into failures if `$SMOOTHCERT_NO_SKIPS` is set, as in CI."""
    report = yield
    if report.skipped and os.environ.get("SMOOTHCERT_NO_SKIPS") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped although SMOOTHCERT_NO_SKIPS is set: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def fixed_torch_seed():
    """Seed torch, so that random tensors of a test are the same in every run."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """Folder with `published/...`: `$SMOOTHCERT_TEST_DATA` if set, otherwise tests/data with its tables unpacked."""
    if folder := os.environ.get("SMOOTHCERT_TEST_DATA"):
        return Path(folder)
    folder = tmp_path_factory.mktemp("shared")
    shutil.copytree(KEPT_DATA / "published", folder / "published")
    for packed in folder.rglob("*.tsv.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    return folder


@pytest.fixture(scope="session")
def sample_data():
    """Folder with samples of MNIST-C, CIFAR-10-C and ImageNet, which the repository may not contain."""
    folder = Path(os.environ.get("SMOOTHCERT_TEST_DATA", "")) / "data"
    if not (folder / "mnist-c").is_dir():
        pytest.skip("needs a download: $SMOOTHCERT_TEST_DATA/data with samples of MNIST-C, CIFAR-10-C and ImageNet")
    return folder


@pytest.fixture(scope="session")
def real_data():
    """Folder with the complete MNIST, Fashion-MNIST and CIFAR-10."""
    folder = Path(os.environ.get("SMOOTHCERT_DATA", ""))
    if not (folder / "cifar10").is_dir():
        pytest.skip("needs a download: $SMOOTHCERT_DATA with MNIST, Fashion-MNIST and CIFAR-10")
    return folder


@pytest.fixture(scope="session")
def mini():
    return smoothcert.load_dataset("mnist-mini", "test")


@pytest.fixture(scope="session")
def tiny(mini):
    """The images of mnist-mini at 7x7, so that votes are cheap."""
    return dataclasses.replace(mini, images=mini.images[:, :, 2::4, 2::4].contiguous())


@pytest.fixture(scope="session")
def tiny_model(tiny):
    """A linear classifier by the nearest class mean: under much noise, some images are unclear and some wrong."""
    means = torch.stack([tiny.floats(tiny.labels == label).mean(dim=0).flatten() for label in range(10)])
    linear = torch.nn.Linear(49, 10)
    linear.weight.data, linear.bias.data = means, -means.square().sum(dim=1) / 2
    return torch.nn.Sequential(torch.nn.Flatten(), linear)


@pytest.fixture(scope="module")
def browser():
    """Chromium, or skip the test."""
    from browsing import launched_browser  # needs playwright

    with launched_browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def trained_lenet():
    """LeNet trained with Gaussian noise for 120 steps: good enough for non-trivial certificates."""
    torch.manual_seed(0)
    data = smoothcert.load_dataset("mnist-mini", "train")
    model = smoothcert.create_model("lenet")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for _ in range(120):
        chosen = torch.randint(len(data), (64,))
        noisy = data.floats(chosen) + 0.25 * torch.randn(64, 1, 28, 28)
        loss = torch.nn.functional.cross_entropy(model(noisy), data.labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@pytest.fixture
def checkpoint(trained_lenet, tmp_path):
    path = tmp_path / "lenet.safetensors"
    smoothcert.save_checkpoint(path, trained_lenet, dataset="mnist-mini", sigma=0.25, method="gaussian")
    return path


@pytest.fixture(scope="session")
def few(mini):
    """Every tenth image of mnist-mini: 100, so that the last mini-batch is a small one."""
    return mini.subset(range(0, 1000, 10))
