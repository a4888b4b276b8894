"""Two precisions on common noise, transferred radii, and sound against ordinary radii on a real network."""

import json

import numpy as np
import pytest
import torch

import smoothcert
from smoothcert.certification.compare_precision import compare_precision, transferred_radius
from smoothcert.cli import main
from smoothcert.errors import UsageError
from smoothcert.report.sources import find_results
from smoothcert.statistics import bounds
from smoothcert.statistics.integer_noise import grid_noise
from smoothcert.statistics.noise import GaussianNoise


def test_votes_that_differ_are_counted_on_common_noise(trained_lenet, mini, tmp_path):
    """The reference counts the votes of both classifiers separately on the same noise."""
    shift = torch.zeros(10)
    shift[3] = 2.0
    first = smoothcert.SmoothedClassifier(trained_lenet, 0.5, 10, micro_batch=64)
    second = smoothcert.SmoothedClassifier(lambda x: trained_lenet(x) + shift, 0.5, 10, micro_batch=64)
    options = {"n0": 20, "n": 300, "indices": [0, 30, 60]}
    found = compare_precision(first, second, mini, tmp_path / "a.tsv", **options)
    ordinary = smoothcert.certify_dataset(first, mini, **options)
    other = smoothcert.certify_dataset(second, mini, **options)
    for one, two, both in zip(ordinary, other, found, strict=True):
        assert (both.predict, both.radius, list(both.estimation)) == (one.predict, one.radius, list(one.estimation))
        moved = np.abs(np.array(one.estimation) - two.estimation).sum() // 2
        assert both.differ == moved, "a shift toward one class moves every differing vote to it"
        assert both.transferred <= both.radius
    assert sum(both.differ for both in found) > 0
    lines = (tmp_path / "a.tsv").read_text().splitlines()
    assert lines[0].split("\t")[-3:] == ["differ", "zeta", "transferred"]
    assert len(smoothcert.read_results(tmp_path / "a.tsv")) == 3
    with pytest.raises(UsageError, match="the same noise, and `num_classes`"):
        compare_precision(first, smoothcert.SmoothedClassifier(trained_lenet, 0.25, 10), mini)


@pytest.mark.parametrize(
    ("bad", "message"), [({"n": 3}, "no input can be certified"), ({"seed": -1}, "`seed`"), ({"n0": 0}, "`n0`")]
)
def test_bad_values_are_refused(trained_lenet, mini, bad, message):
    classifier = smoothcert.SmoothedClassifier(trained_lenet, 0.5, 10)
    with pytest.raises(UsageError, match=message):
        compare_precision(classifier, classifier, mini, **{"n": 100, "indices": [0], **bad})


def test_transferred_certificates_keep_alpha():
    """f votes for the class with p, and f' differs with zeta, always against it: the radius must hold for p - zeta."""
    alpha, repeats, n, p, zeta = 0.05, 20_000, 500, 0.9, 0.03
    generator = np.random.default_rng(0)
    votes = generator.multinomial(n, [p - zeta, zeta, 1 - p], repeats)
    noise = GaussianNoise(0.5)
    radius = transferred_radius(votes[:, 0] + votes[:, 1], votes[:, 1], n, noise, alpha)
    assert (radius > noise.radius(1 - (p - zeta))).mean() <= alpha + 4 * np.sqrt(alpha / repeats)
    assert (radius > 0).all()
    assert transferred_radius(n, 0, n, noise, alpha) < noise.radius(bounds.failure_upper_bound(n, n, alpha))


def test_the_command_compares_fp32_and_bf16(checkpoint, tmp_path, capsys):
    out = tmp_path / "c.tsv"
    flags = ["--n", "100", "--skip", "500", "--device", "cpu", "--out", str(out), "--json"]
    assert main(["compare-precision", str(checkpoint), *flags, "--batch", "0"]) == 2
    assert main(["compare-precision", str(checkpoint), *flags, "--dry-run"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["task"], plan["images"], plan["samples"]) == ("compare-fp32-bf16", 2, 400)
    assert not out.exists()
    assert main(["compare-precision", str(checkpoint), *flags]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["images"] == 2
    assert 0 <= summary["differ"] <= 0.05
    assert summary["differ"] < summary["differ_at_most"] < 0.1
    assert summary["acr_transferred"] < summary["acr"]
    with pytest.raises(UsageError, match="contains no certification results file"):  # no row of a table
        find_results([str(tmp_path)])
    assert main(["compare-precision", str(checkpoint), "--with", "fp32"]) == 2
    assert main(["compare-precision", str(checkpoint), "--with", "fp16"]) == 2


@pytest.mark.slow
def test_sound_radii_agree_with_the_ordinary_ones(mini):
    """On a pretrained model at a noise level where it is uncertain: both votes are draws of the same binomial."""
    network = smoothcert.load_pretrained("mnist-catrs-0.25").model
    options, sigma = {"n0": 100, "n": 2000, "indices": range(0, 1000, 50)}, 0.6
    forms = {"form": "folded", "micro_batch": 100}
    ordinary = smoothcert.SmoothedClassifier(network, sigma, 10, **forms)
    sound = smoothcert.SmoothedClassifier(network, sigma, 10, noise=grid_noise(sigma, 784), **forms)
    first, second = (smoothcert.certify_dataset(kind, mini, **options) for kind in (ordinary, sound))
    scores = []
    for one, two in zip(first, second, strict=True):
        if one.predict == two.predict != -1:
            hits = one.estimation[one.predict], two.estimation[two.predict]
            share = sum(hits) / 4000
            spread = np.sqrt(2 * 2000 * share * (1 - share))
            scores.append((hits[0] - hits[1]) / spread if spread else 0.0)
    assert len(scores) >= 10
    assert max(map(abs, scores)) < 4.5
    assert abs(np.mean(scores)) < 4.5 / np.sqrt(len(scores))
    acr = [np.mean([record.radius for record in records]) for records in (first, second)]
    assert acr[1] == pytest.approx(acr[0], rel=0.03)
