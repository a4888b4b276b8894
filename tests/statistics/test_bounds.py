from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from scipy.optimize import brentq
from statsmodels.stats.proportion import proportion_confint

from smoothcert.errors import UsageError
from smoothcert.statistics import bounds
from smoothcert.statistics.certify import certify_votes
from smoothcert.statistics.noise import GaussianNoise

alphas = st.floats(1e-6, 0.5)


@given(st.data(), st.integers(1, 200_000), alphas)
def test_lower_bound_matches_statsmodels(data, n, alpha):
    k = data.draw(st.integers(0, n))
    expected = proportion_confint(k, n, alpha=2 * alpha, method="beta")[0]
    assert bounds.lower_bound(k, n, alpha) == pytest.approx(0.0 if k == 0 else expected, rel=1e-11, abs=1e-15)


@given(st.data(), st.integers(1, 300), st.floats(1e-3, 0.5))
def test_lower_bound_solves_its_definition(data, n, alpha):
    k = data.draw(st.integers(1, n))
    exact = brentq(lambda p: stats.binom.sf(k - 1, n, p) - alpha, 1e-15, 1 - 1e-15, xtol=1e-14)
    assert bounds.lower_bound(k, n, alpha) == pytest.approx(exact, abs=1e-9)


@given(st.integers(0, 500), st.integers(0, 500))
def test_tie_p_value_matches_scipy(a, b):
    k, n = max(a, b), a + b
    expected = stats.binomtest(k, n, 0.5).pvalue if n else 1.0
    assert bounds.tie_p_value(k, n) == pytest.approx(expected, rel=1e-9)


def test_predictions_from_more_votes_than_fit_32_bits():
    assert bounds.predict_counts([3_000_000_000, 2_999_000_000], 0.001) == 0  # 13 standard deviations
    assert bounds.predict_counts([3_000_000_000, 2_999_999_000], 0.001) == bounds.ABSTAIN


@pytest.mark.parametrize("n", [10**4, 10**6, 10**8, 10**9, 2**32 - 1])
@pytest.mark.parametrize("alpha", [0.05, 0.001, 0.0001, 1e-6, 1e-20, 1e-300])
def test_bounds_hold_where_scipys_inverse_fails(n, alpha):
    """At 999 failures SciPy's inverse is the bound of several times alpha; the reference sums the tail term by term."""
    for failures in (5, 500, 998, 999, 1000):
        bound = float(bounds.failure_upper_bound(n - failures, n, alpha))
        number = np.arange(failures + 1.0)
        terms = np.cumsum(np.log((n - number[:-1]) / number[1:])) + number[1:] * (np.log(bound) - np.log1p(-bound))
        tail = n * np.log1p(-bound) + special.logsumexp(np.r_[0.0, terms])
        assert tail <= np.log(alpha) + 1e-7, failures
        assert bound > 0.99 or tail >= np.log(alpha) - 1e-4, failures


def test_bounds_keep_full_precision_near_certainty():
    failure = bounds.failure_upper_bound(10**9, 10**9, 0.001)
    assert failure == pytest.approx(-np.log(0.001) / 10**9, rel=1e-8)
    assert bounds.gaussian_radius(failure, 1.0) == pytest.approx(stats.norm.isf(float(failure)), rel=1e-12)


@pytest.mark.parametrize(("n", "radius"), [(10**3, 2.463), (10**4, 3.199), (10**5, 3.8115), (10**6, 4.347)])
def test_largest_radius_as_published(n, radius):
    assert bounds.largest_radius(1.0, n, 0.001) == pytest.approx(radius, abs=5e-4)


@pytest.mark.parametrize("alpha", [0.5, 0.4, 0.05, 0.001, 2.0**-10, 1e-9])
def test_smallest_sample_is_minimal(alpha):
    n = bounds.smallest_sample(alpha)
    assert bounds.failure_upper_bound(n, n, alpha) <= 0.5 + 1e-12
    assert n == 1 or bounds.failure_upper_bound(n - 1, n - 1, alpha) > 0.5


@pytest.mark.parametrize("alpha", [0.9, 0.5, 0.05, 0.001, 2.0**-10, 1e-9])
def test_sample_sizes_that_always_abstain_are_refused(alpha):
    """With one vote less than the minimum, PREDICT and the two-sided bound abstain even if all votes agree."""
    least = bounds.smallest_sample(alpha / 2)
    for votes, answer in ((least, 0), (least - 1, bounds.ABSTAIN)):
        assert bounds.predict_counts([votes, 0], alpha) == answer
        assert certify_votes([[1, 0]], [[votes, 0]], GaussianNoise(0.5), alpha, "two-sided")[0].tolist() == [answer]
    bounds.check_prediction(least, alpha)
    bounds.check_budget(1, least, alpha, "two-sided")
    for check in (bounds.check_prediction, partial(bounds.check_budget, 1, bound="two-sided")):
        with pytest.raises(UsageError, match=f"use n >= {least}"):
            check(least - 1, alpha)


@pytest.mark.parametrize("p", [0.5, 0.6, 0.9, 0.999])
@pytest.mark.parametrize("n", [100, 10_000])
def test_false_certificates_stay_under_alpha(p, n):
    """The test has power: a bound at twice alpha fails it, except where the binomial has few steps."""
    alpha, repeats = 0.05, 20_000
    successes = np.random.default_rng(0).binomial(n, p, repeats)
    limit = alpha + 4 * np.sqrt(alpha * (1 - alpha) / repeats)
    assert (bounds.lower_bound(successes, n, alpha) > p).mean() <= limit
    if n * p * (1 - p) > 20:
        assert (bounds.lower_bound(successes, n, 2 * alpha) > p).mean() > limit


def test_only_the_selection_chooses_the_class():
    selection = np.array([[60, 40, 0], [40, 60, 0], [50, 50, 0]])
    estimation = np.array([[100, 900, 0], [100, 900, 0], [900, 100, 0]])
    prediction, radius, p_lower = bounds.certify_counts(selection, estimation, 0.5, 0.001)
    assert prediction.tolist() == [bounds.ABSTAIN, 1, 0], (
        "the estimation never changes the class; ties go to the lowest"
    )
    assert radius[0] == 0.0
    expected = stats.beta.ppf(0.001, 900, 101)
    assert p_lower[1] == pytest.approx(expected)
    assert radius[1] == pytest.approx(0.5 * stats.norm.ppf(expected))


def test_predict_abstains_on_a_close_vote():
    votes = [[520, 480, 0], [700, 200, 100], [0, 1, 0], [0, 0, 20]]
    assert bounds.predict_counts(votes, 0.001).tolist() == [bounds.ABSTAIN, 0, bounds.ABSTAIN, 2]


@pytest.mark.parametrize(
    "call",
    [
        lambda: bounds.lower_bound(5, 4, 0.1),
        lambda: bounds.lower_bound(-1, 4, 0.1),
        lambda: bounds.lower_bound(0, 0, 0.1),
    ],
)
def test_impossible_counts_are_refused(call):
    with pytest.raises(UsageError, match="successes"):
        call()


@pytest.mark.parametrize("votes", [[0.9, 1.0], [float("nan"), 1], [-1, 2], []])
def test_votes_are_whole_numbers(votes):
    with pytest.raises(UsageError, match="`counts` to be whole numbers of votes per class"):
        bounds.predict_counts(votes, 0.001)
    assert bounds.predict_counts([0.0, 100.0], 0.001) == 1
