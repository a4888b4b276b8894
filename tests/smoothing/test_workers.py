"""Votes on the CPU in several threads: the same votes for any number of them, and only where it is safe."""

import random
import threading
import time
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import smoothcert
from smoothcert.smoothing.workers import copy_module, share_out

HANGS = 60


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class Linear(nn.Module):
    """Two classes on either side of a plane through 0.5, computed in a way that a subclass chooses."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(784, 2)

    def forward(self, x):
        return self.layer(x.flatten(1) - 0.5)


class Recording(Linear):
    """Notes, for all copies together, which threads vote and with how many threads an operation is computed."""

    seen: ClassVar[set] = set()

    def forward(self, x):
        self.seen.add((threading.current_thread().name, torch.get_num_threads()))
        return super().forward(x)


class Writing(Linear):
    """Keeps its input in an attribute for a moment, so that threads that share it would mix up their inputs."""

    def forward(self, x):
        self.kept = x
        time.sleep(0.002)
        return super().forward(self.kept)


class Meeting(Linear):
    """Waits in its first call in each of two threads until the other one votes, too."""

    def __init__(self):
        super().__init__()
        self.met = False

    def forward(self, x):
        if not self.met:
            self.met = True
            Meeting.barrier.wait(HANGS)
        return super().forward(x)


def reduced(x):
    """Scores from long sums, which round differently if several threads share them."""
    parts = x.double().float().flatten(1).repeat(1, 64)
    return torch.stack([parts[:, ::2].sum(dim=1), parts[:, 1::2].sum(dim=1)], dim=1)


def votes(model, count, n=2000, **options):
    torch.set_num_threads(count)
    smoothed = smoothcert.SmoothedClassifier(model, 1.0, micro_batch=64, input_range=None, **options)
    images = torch.linspace(0, 1, 2 * 784).view(2, 1, 28, 28)
    counts = smoothed.count_stages(images, (0, 100, n))
    assert torch.get_num_threads() == count
    return counts, smoothed.scores(images)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("lenet", {"form": "plain"}),
        ("lenet", {"form": "folded"}),
        ("lenet", {"form": "folded", "precision": "bf16"}),
        ("ensemble", {"form": "folded"}),
        ("module", {}),
        ("function", {}),
        ("function", {"threads": 2}),
    ],
)
def test_votes_and_scores_do_not_depend_on_the_number_of_threads(trained_lenet, model, options):
    ensemble = smoothcert.Ensemble([trained_lenet, *(smoothcert.create_model("lenet") for _ in range(2))], consensus=2)
    chosen = {"lenet": trained_lenet, "ensemble": ensemble, "module": Linear(), "function": reduced}[model]
    expected = votes(chosen, 1, **options)
    for count in (2, 3):
        for found, wanted in zip(votes(chosen, count, **options), expected, strict=True):
            assert torch.equal(found, wanted)


@pytest.mark.slow
def test_a_compiled_network_votes_in_several_threads(trained_lenet):
    expected, found = (votes(trained_lenet, count, form="pinned") for count in (1, 2))
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize("model", [Recording(), lambda x: Recording.forward(Recording(), x)])
def test_operations_are_computed_in_one_thread(model):
    Recording.seen.clear()
    votes(model, 3)
    assert {count for _, count in Recording.seen} == {1}


def test_several_threads_vote_at_the_same_time():
    Meeting.barrier = threading.Barrier(2)
    model = Meeting()
    smoothed = smoothcert.SmoothedClassifier(model, 1.0, 2, input_range=None, micro_batch=64, threads=2)
    model.scores_rows_alone = True  # the check would wait for a second thread
    assert smoothed.counts(torch.rand(1, 28, 28), 1000).sum() == 1000


def test_a_batch_limits_the_threads():
    Recording.seen.clear()
    smoothed = smoothcert.SmoothedClassifier(Recording(), 1.0, 2, input_range=None, micro_batch=64, threads=3)
    smoothed.counts(torch.rand(1, 28, 28), 2000, batch=64)
    assert {name for name, _ in Recording.seen} == {threading.current_thread().name}


def test_threads_do_not_share_what_a_module_writes():
    expected = votes(Linear(), 1)[0]
    assert torch.equal(votes(Writing(), 3)[0], expected)


class Hooked(Linear):
    def __init__(self):
        super().__init__()
        self.layer.register_forward_hook(lambda *_: None)


class Forwarding(Linear):
    def __init__(self):
        super().__init__()
        self.forward = lambda x: self.layer(x.flatten(1))


class Listing(Linear):
    def __init__(self):
        super().__init__()
        self.steps = [lambda x: self.layer(x)]


class Drawing(Linear):
    def __init__(self, generator):
        super().__init__()
        self.generator = generator


class Locking(Linear):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()  # cannot be copied


def test_modules_that_may_share_a_state_vote_in_one_thread():
    unsafe = [Hooked(), Forwarding(), Listing(), Locking(), torch.compile(Linear()), nn.Sequential(Hooked()), reduced]
    unsafe += [Drawing(each) for each in (random.Random(0), np.random.default_rng(0), torch.Generator())]
    assert [copy_module(model, 2) for model in unsafe] == [[]] * len(unsafe)
    assert len(copy_module(Linear(), 2)) == 2


def test_copies_share_the_weights_and_nothing_else():
    model = nn.Sequential(Linear(), nn.BatchNorm1d(2))
    (other,) = copy_module(model, 1)
    assert all(a is b for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert other[1].running_mean is not model[1].running_mean
    assert other[0] is not model[0]


def test_random_models_vote_in_one_thread():
    class Random(Recording):
        def forward(self, x):
            return super().forward(x) + torch.randn(len(x), 2)

    Recording.seen.clear()
    votes(Random(), 3)
    assert len(Recording.seen) == 1


def test_a_module_whose_copies_score_differently_votes_in_one_thread():
    class Forgetting(Recording):
        scale = 1.0

        def __getstate__(self):
            return {key: value for key, value in vars(self).items() if key != "scale"}

        def forward(self, x):
            return self.scale * super().forward(x)

    model = Forgetting()
    model.scale = -1.0
    Recording.seen.clear()
    found = votes(model, 3)[0]
    assert {name for name, _ in Recording.seen} == {threading.current_thread().name}
    assert torch.equal(found, votes(Linear(), 1)[0].flip(-1))


def test_an_error_in_one_thread_ends_all_and_is_raised():
    taken = []

    def work(items):
        for item in items:
            taken.append(item)
            if item == 3:
                raise ValueError("item 3")
            time.sleep(0.001)

    with pytest.raises(ValueError, match="item 3"):
        share_out(range(10_000), [work] * 3)
    assert len(taken) < 100


def test_an_interrupt_ends_all_threads():
    taken = []

    def work(items):
        for item in items:
            taken.append(item)
            if threading.current_thread() is threading.main_thread() and len(taken) > 5:
                raise KeyboardInterrupt
            time.sleep(0.001)

    with pytest.raises(KeyboardInterrupt):
        share_out(range(10_000), [work] * 3)
    assert len(taken) < 1000


def test_settings_are_restored_after_an_error():
    def broken(x):
        raise RuntimeError("no")

    torch.set_num_threads(3)
    with pytest.raises(smoothcert.UsageError, match="no"):
        smoothcert.SmoothedClassifier(broken, 1.0, 2).counts(torch.rand(4), 10)
    assert torch.get_num_threads() == 3


def test_later_threads_of_the_caller_have_their_number_of_threads():
    torch.set_num_threads(3)
    smoothcert.SmoothedClassifier(Linear(), 1.0, 2, threads=2).counts(torch.rand(1, 28, 28), 600)
    found = []
    thread = threading.Thread(target=lambda: found.append((torch.ones(2).sum(), torch.get_num_threads())[1]))
    thread.start()
    thread.join()
    assert found == [3]
