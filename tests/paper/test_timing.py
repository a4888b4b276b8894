"""Estimates of a run's cost from fixed times of a trial."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from training_child import configure

from smoothcert.model_names import REGISTERED
from smoothcert.paper import timing

CPU = torch.device("cpu")


def test_steps_are_timed_from_the_first_report_on(few, monkeypatch):
    """Ten steps in five seconds; time before the first report, such as compilation, does not count."""
    now = [0.0]

    def fit(config, folder, train, test, *, on_progress, **_):
        for step, seconds in ((3, 60.0), (7, 62.0), (13, 65.0), (99, 200.0)):
            now[0] = seconds
            on_progress(SimpleNamespace(step=step))

    monkeypatch.setattr(timing, "fit", fit)
    monkeypatch.setattr("smoothcert.paper.timing.time.perf_counter", lambda: now[0])
    monkeypatch.setattr(timing, "load_images", lambda config, split, data_dir: few)
    assert timing.estimate_steps(configure("gaussian", epochs=5), None, CPU) == (5 * 4, 0.5)
    assert timing.estimate_steps(configure("gaussian", epochs=5, validation=0.5), None, CPU) == (5 * 2, 0.5)


def test_labels_and_certificates_by_samples_per_second(few, monkeypatch):
    smoothed = SimpleNamespace(micro_batch_for=lambda *_: 25, counts=lambda *_: None)
    now = itertools.count(0, 2)  # 4 * 25 votes in two seconds
    monkeypatch.setattr(timing, "SmoothedClassifier", lambda *_, **__: smoothed)
    monkeypatch.setattr("smoothcert.paper.timing.time.perf_counter", lambda: next(now))
    monkeypatch.setattr(timing, "estimate_steps", lambda *_: (20, 3.0))
    monkeypatch.setattr(timing, "load_images", lambda config, split, data_dir: few)
    assert timing.estimate_certification(configure("gaussian"), few, CPU, 1000) == 20.0
    catrs = configure("catrs", label_samples=7)
    assert timing.estimate_labels(catrs, None, CPU) == (60.0, pytest.approx(100 * 7 / 50))
    assert timing.estimate_labels(configure("gaussian"), None, CPU) == (0.0, 0.0)


def test_a_trial_has_soft_labels_for_all_scores_of_a_network(few, monkeypatch):
    seen = []

    def fit(config, folder, train, test, *, soft, on_progress, **_):
        seen.append(soft)
        on_progress(SimpleNamespace(step=1))

    def wide(num_classes):
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes + 2))

    monkeypatch.setattr(timing, "fit", fit)
    monkeypatch.setattr(timing, "load_images", lambda config, split, data_dir: few)
    monkeypatch.setitem(REGISTERED, "wide", wide)
    timing.estimate_steps(configure("catrs", architecture="wide"), None, CPU)
    assert seen[0].shape == (len(few), 12), "the network has more scores than there are classes"
