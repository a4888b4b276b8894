"""Noises: exact distributions, the radii they prove, and the same numbers on every path."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import smoothcert
from smoothcert.errors import UsageError
from smoothcert.philox import long_words
from smoothcert.smoothing.noising import add_noise, check_grid
from smoothcert.statistics import bounds
from smoothcert.statistics.integer_noise import BITS, grid_noise, thresholds
from smoothcert.statistics.noise import GaussianNoise, UniformNoise, convert_radius, make_noise, noise_of

mpmath = pytest.importorskip("mpmath")  # comes with torch


@pytest.mark.parametrize("sigma", [0.25, *(pytest.param(sigma, marks=pytest.mark.slow) for sigma in (0.12, 0.5, 1.0))])
def test_thresholds_are_exact(sigma):
    """Against mpmath at 300 bits: every one of the 2**60 parts is where rounding puts it."""
    table = thresholds(sigma)
    with mpmath.workprec(300):
        steps = range(-table.offset, table.offset + 1)
        exact = [mpmath.ncdf(mpmath.mpf(2 * i + 1) / (510 * mpmath.mpf(sigma))) * 2**BITS for i in steps]
        assert list(table.counts) == [int(mpmath.nint(value)) for value in exact]


def test_the_grid_noise_has_the_distribution_of_its_thresholds():
    """Frequencies against the exact integers; and the integer path itself against counting by hand."""
    sigma, size = 0.25, 2000
    table = thresholds(sigma)
    drawn = long_words(3, (torch.arange(100), 7, 0), size).flatten()
    inputs = torch.full((1, size), 128 / 255)
    noisy = add_noise(
        grid_noise(sigma, size), inputs, torch.zeros(1, dtype=torch.long), torch.tensor([7]),
        torch.arange(100).view(1, 100), seed=3, purpose=0,
    ).flatten()  # fmt: skip
    steps = (noisy * 255).round().long() - 128
    counts = np.array(table.counts)
    for value, step in zip(drawn[:300].tolist(), steps[:300].tolist(), strict=True):
        expected = sum(bound <= value for bound in table.counts) - table.offset
        assert step == min(max(expected + 128, table.low), table.high) - 128
    below = np.cumsum(np.bincount(steps.numpy() + table.offset, minlength=len(counts)))[: len(counts)]
    exact = counts / 2**BITS
    deviation = np.sqrt(exact * (1 - exact) * len(drawn)) + 1
    inside = slice(table.offset - 380, table.offset + 380)  # where nothing is clipped
    assert np.abs(below - exact * len(drawn))[inside].max() < 5 * deviation.max()
    assert (np.abs(below - exact * len(drawn))[inside] < 5.5 * deviation[inside]).all()
    assert torch.equal(noisy, (noisy * 255).round() / 255), "every value is a pixel's, divided once"


def test_grid_noise_is_rounded_gaussian_noise():
    noise = grid_noise(0.5, 1000)
    inputs, zero = torch.full((1, 1000), 100 / 255), torch.zeros(1, dtype=torch.long)
    noisy = add_noise(noise, inputs, zero, zero, torch.arange(200).view(1, 200), seed=1, purpose=0)
    spread = (noisy - inputs).double().flatten()
    assert float(spread.mean()) == pytest.approx(0, abs=5 * 0.5 / np.sqrt(spread.numel()))
    assert float(spread.std()) == pytest.approx(0.5, rel=0.01)


def test_only_8_bit_images_are_certified_soundly(trained_lenet, mini):
    check_grid(grid_noise(0.25, 784), mini.floats([0, 1]))
    smoothed = smoothcert.SmoothedClassifier(trained_lenet, 0.25, 10, noise=grid_noise(0.25, 784))
    with pytest.raises(UsageError, match="multiples of 1/255"):
        smoothed.certify(torch.rand(1, 28, 28), n=100)
    with pytest.raises(UsageError, match="choose `form='pinned'`"):
        smoothcert.SmoothedClassifier(trained_lenet, 0.25, 10, noise=grid_noise(0.25, 784), form="compiled")
    with pytest.raises(UsageError, match="Expected `noise` to have sigma = 0.5"):
        smoothcert.SmoothedClassifier(trained_lenet, 0.5, 10, noise=grid_noise(0.25, 784))


@pytest.mark.parametrize("sound", [True, False])
def test_a_sound_file_is_not_continued_by_other_sources(trained_lenet, mini, tmp_path, monkeypatch, sound):
    noise = grid_noise(0.25, 784) if sound else "gaussian"
    smoothed = smoothcert.SmoothedClassifier(trained_lenet, 0.25, 10, noise=noise)
    out, options = tmp_path / "a.tsv", {"n0": 5, "n": 20, "indices": [0, 1]}

    def interrupt(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        smoothcert.certify_dataset(smoothed, mini, out, on_progress=interrupt, **options)
    monkeypatch.setattr("smoothcert.runtime.environment.source_hash", lambda: "another")
    if sound:
        with pytest.raises(UsageError, match=r"different settings \(pinned.source was"):
            smoothcert.certify_dataset(smoothed, mini, out, **options)
    else:
        smoothcert.certify_dataset(smoothed, mini, out, **options)


@pytest.mark.parametrize("pixel", [-1, 256, 510])
def test_what_the_table_of_thresholds_does_not_reach_is_not_certified_soundly(pixel):
    """A vector, or an image whose range is not checked, may hold multiples of 1/255 that no 8-bit image has."""
    smoothed = smoothcert.SmoothedClassifier(lambda x: x, 0.25, 3, input_range=None, noise=grid_noise(0.25, 3))
    smoothed.certify(torch.tensor([0.0, 100 / 255, 1.0]), n=100)
    with pytest.raises(UsageError, match=r"multiples of 1/255 in \[0, 1\]"):
        smoothed.certify(torch.tensor([0.0, 0.0, pixel / 255]), n=100)


def test_the_slack_of_small_inputs_does_not_do_for_large_ones():
    smoothed = smoothcert.SmoothedClassifier(lambda x: x, 0.25, 3, noise=grid_noise(0.25, 2))
    with pytest.raises(UsageError, match=r"grid_noise\(0.25, 3\)"):
        smoothed.certify(torch.zeros(3), n=100)


@pytest.mark.parametrize(("k", "n"), [(100_000, 100_000), (99_990, 100_000), (700, 1000), (501, 900)])
def test_sound_radii_lie_below_the_exact_ones(k, n):
    """The exact bound in 60 digits: the root of P(Bin(n, p) >= k) = alpha."""
    alpha, sigma = 0.001, 0.25
    noise = grid_noise(sigma, 3072)
    failure = bounds.failure_upper_bound(k, n, alpha)
    ours = float(noise.radius(failure))
    with mpmath.workdps(60):
        low, high = mpmath.mpf(1) / 10**12, mpmath.mpf(1) - mpmath.mpf(1) / 10**12
        for _ in range(160):  # on the failure probability
            middle = (low + high) / 2
            enough = mpmath.betainc(k, n - k + 1, 0, 1 - middle, regularized=True) if k < n else (1 - middle) ** n
            low, high = (middle, high) if enough > alpha else (low, middle)
        exact = -sigma * mpmath.sqrt(2) * mpmath.erfinv(2 * high - 1)
    assert ours <= exact
    assert ours == pytest.approx(float(exact), abs=5e-6)


@given(st.floats(0, 3), st.sampled_from(["gaussian", "uniform", "grid"]))
def test_the_failure_at_a_radius_proves_it(radius, name):
    noise = grid_noise(1.0, 784) if name == "grid" else make_noise(name, 1.0)
    failure = noise.failure_at(radius)
    if failure > 0:
        assert noise.gap_radius(failure, failure) >= radius * (1 - 1e-9) - 1e-12
        assert noise.gap_radius(failure, failure) <= radius + 1e-5
        assert noise.gap_radius(failure * 1.001 + 1e-4, failure * 1.001 + 1e-4) < radius


def test_the_uniform_radius_is_tight():
    """Half a cube: moving by the radius along an axis makes the vote even, and no less does."""
    noise = UniformNoise(0.5)
    p = 0.8
    edge = noise.half_width * (2 * p - 1)  # the base classifier answers 1 below this value of the first coordinate
    radius = float(noise.radius(1 - p))
    share = stats.uniform(radius - noise.half_width, 2 * noise.half_width).cdf(edge)
    assert share == pytest.approx(0.5)
    assert radius == pytest.approx(2 * noise.half_width * (p - 0.5))


def test_uniform_noise_is_uniform_and_symmetric():
    noise = UniformNoise(0.5)
    zero = torch.zeros(1, dtype=torch.long)
    samples = torch.arange(200).view(1, 200)
    drawn = add_noise(noise, torch.zeros(1, 1000), zero, zero, samples, seed=2, purpose=0).double().flatten().numpy()
    width = noise.half_width
    assert stats.kstest(drawn, stats.uniform(-width, 2 * width).cdf).pvalue > 1e-3
    assert abs(drawn).max() < width
    assert drawn.std() == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize("noise", [UniformNoise(0.25), grid_noise(0.25, 784)], ids=["uniform", "grid"])
def test_other_noises_do_not_depend_on_the_batch(trained_lenet, mini, noise):
    smoothed = smoothcert.SmoothedClassifier(trained_lenet, 0.25, 10, micro_batch=32, noise=noise)
    images = mini.floats([3, 1, 4])
    counts = smoothed.count_stages(images, (0, 100, 300), index=[3, 1, 4], batch=96)
    alone = [smoothed.count_stages(images[i : i + 1], (0, 100, 300), index=[j]) for i, j in enumerate([3, 1, 4])]
    assert torch.equal(counts, torch.cat(alone))


def test_sidecars_name_their_noise():
    for noise in (GaussianNoise(0.5), UniformNoise(0.5), grid_noise(0.5, 784)):
        assert noise_of({"sigma": 0.5, **noise.settings()}) == noise
    assert GaussianNoise(0.5).settings() == {}
    with pytest.raises(UsageError, match="Unknown noise 'unifrom'; did you mean 'uniform'"):
        make_noise("unifrom", 0.5)


def test_radii_in_other_norms():
    assert convert_radius(1.0, "l2", "linf", 3072) == pytest.approx(1 / np.sqrt(3072))
    assert convert_radius(1.0, "l1", "linf", 100) == pytest.approx(0.01)
    assert convert_radius(1.0, "l2", "linf", 3072) <= 1 / np.sqrt(3072), "never rounded up"
    with pytest.raises(UsageError, match="linf radius needs `dimensions`"):
        convert_radius(1.0, "l2", "linf", None)
    with pytest.raises(UsageError, match="Unknown norm"):
        convert_radius(1.0, "l2", "l0", 3)
