"""Evaluation beyond ACR, against brute force."""

import numpy as np
import pytest
from scipy import stats

from smoothcert.errors import UsageError
from smoothcert.statistics.bounds import failure_upper_bound
from smoothcert.statistics.evaluation import expected_radii, label_shares
from smoothcert.statistics.noise import GaussianNoise

NOISE = GaussianNoise(0.5)


def test_expected_radii_agree_with_scipys_distribution():
    for n, fewer, counts in ((50, 20, [0, 1, 25, 49, 50]), (400, 399, [200, 399, 400]), (1000, 100, [600, 990])):
        radius = NOISE.radius(failure_upper_bound(np.arange(fewer + 1), fewer, 0.01))
        exact = [stats.hypergeom.pmf(np.arange(fewer + 1), n, count, fewer) @ radius for count in counts]
        assert expected_radii(counts, n, fewer, NOISE, 0.01) == pytest.approx(exact, rel=1e-9, abs=1e-15)


def test_expected_radii_are_those_of_drawing_fewer_votes():
    """Averaged over the votes, thinning n votes gives what m fresh votes give: it is unbiased."""
    generator, p, n, fewer = np.random.default_rng(0), 0.93, 500, 60
    thinned = expected_radii(generator.binomial(n, p, size=20_000), n, fewer, NOISE, 0.01)
    fresh = NOISE.radius(failure_upper_bound(generator.binomial(fewer, p, size=20_000), fewer, 0.01))
    assert thinned.mean() == pytest.approx(fresh.mean(), abs=5 * fresh.std() / np.sqrt(20_000))
    assert thinned.std() < fresh.std()


def test_all_votes_give_the_certified_radius():
    counts = np.array([0, 300, 400, 500])
    assert expected_radii(counts, 500, 500, NOISE, 0.01) == pytest.approx(
        NOISE.radius(failure_upper_bound(counts, 500, 0.01)), rel=1e-9
    )
    with pytest.raises(UsageError, match="`fewer` to be between 1 and n = 500, but got 501"):
        expected_radii(counts, 500, 501, NOISE, 0.01)


def test_labels_beyond_the_classes_that_got_votes_have_no_share():
    assert label_shares([[3, 1], [2, 2]], [7, 1]).tolist() == [0.0, 0.5]
