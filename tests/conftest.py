"""Where tests find what does not travel with the repository, and what they share."""

import os
from pathlib import Path

import hypothesis
import pytest
import torch

import smoothcert

# The run that decides must not depend on luck; everyone else's explores. None depends on how busy the machine is.
hypothesis.settings.register_profile("decides", derandomize=True, deadline=None)
hypothesis.settings.register_profile("explores", deadline=None)
hypothesis.settings.load_profile("decides" if os.environ.get("SMOOTHCERT_NO_SKIPS") else "explores")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Turn skips into failures where nothing may be skipped: in the run that decides whether a change lands."""
    report = yield
    if report.skipped and os.environ.get("SMOOTHCERT_NO_SKIPS") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be skipped: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def same_numbers_every_time():
    """Random tensors of a test are the same in every run."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def shared():
    """The folder of published results and sample data; tests that need it are skipped where it is not."""
    folder = os.environ.get("SMOOTHCERT_TEST_DATA")
    if not folder:
        pytest.skip("SMOOTHCERT_TEST_DATA is not set: no published results and sample data to test against")
    return Path(folder)


@pytest.fixture(scope="session")
def real_data():
    """The folder with the real MNIST, Fashion-MNIST and CIFAR-10."""
    folder = Path(os.environ.get("SMOOTHCERT_DATA", ""))
    if not (folder / "cifar10").is_dir():
        pytest.skip("SMOOTHCERT_DATA does not hold the real data sets")
    return folder


@pytest.fixture(scope="session")
def mini():
    return smoothcert.load_dataset("mnist-mini", "test")


@pytest.fixture(scope="session")
def trained_lenet():
    """A LeNet trained for a few seconds with Gaussian noise: good enough to have certificates."""
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
    """100 images: the last mini-batch is a small one."""
    return mini.subset(range(0, 1000, 10))
