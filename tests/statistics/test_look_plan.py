"""The statistics of looking more than once: every scheme keeps alpha, and careless peeking does not."""

from functools import cached_property

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from smoothcert.certification.scheduler import ByBudget, InTurn, Tracker
from smoothcert.errors import UsageError
from smoothcert.statistics import bounds
from smoothcert.statistics.certify import bound_uniforms, certify_looks, randomized_bound
from smoothcert.statistics.look_plan import (
    Plan,
    check_reach,
    dense_plan,
    even_plan,
    failure_lower_bound,
    fixed_plan,
    plan_of,
    table_plan,
    undecided,
)
from smoothcert.statistics.noise import GaussianNoise
from smoothcert.statistics.stopping import BudgetStop, RadiusStop, TableStop

ALPHA, REPEATS = 0.05, 20_000
NOISE = GaussianNoise(0.5)
RADII = (0.25, 0.5, 1.0)
LIMIT = ALPHA + 4 * np.sqrt(ALPHA * (1 - ALPHA) / REPEATS)  # 0.056: anything near 1.5 alpha is caught


def walk(plan, p, repeats, generator):
    """Successes at every look of inputs whose class wins with probability p: [repeats, looks]."""
    steps = np.diff([0, *plan.looks])
    return np.cumsum(generator.binomial(steps, p, (repeats, len(steps))), axis=1)


class Scheme:
    """A plan with its rule; bounds and decisions are tabulated, since they depend on the successes at a look alone."""

    def __init__(self, plan, needs):
        self.plan, self.needs = plan, np.asarray(needs)

    @cached_property
    def bounds(self):
        return [self.plan.failure(np.arange(n + 1), look) for look, n in enumerate(self.plan.looks)]

    @cached_property
    def hopes(self):
        """Whether a need is neither refuted nor out of reach: undecided, if nothing was proven so far."""
        every = [np.arange(n + 1) for n in self.plan.looks]
        return [
            np.stack([undecided(self.plan, [need], k, look, np.ones(len(k))) for need in self.needs], axis=1)
            for look, k in enumerate(every)
        ]

    def run(self, successes):
        """Follow the rule: the best bound when it stopped."""
        best, active = np.ones(len(successes)), np.ones(len(successes), dtype=bool)
        for look in range(len(self.plan.looks)):
            k = successes[:, look]
            best = np.where(active, np.minimum(best, self.bounds[look][k]), best)
            active &= (self.hopes[look][k] & (self.needs < best[:, None])).any(axis=1)
        return best


SCHEMES = {
    "fixed": Scheme(fixed_plan(2000, ALPHA), TableStop(radii=RADII).needs(NOISE)),
    "table": Scheme(table_plan(2000, ALPHA), TableStop(radii=RADII).needs(NOISE)),
    "budget": Scheme(even_plan(2000, ALPHA), TableStop(radii=RADII).needs(NOISE)),
    "radius": Scheme(dense_plan(2000, ALPHA), NOISE.failure_at([0.5])),
}


def edges():
    """Probabilities at the boundaries of the radii, and just beside them."""
    for radius in (0.0, 0.5, 1.0):
        p = 1 - float(NOISE.failure_at(radius))
        yield from (p - 0.003, p, p + 0.003)


@pytest.mark.parametrize("name", SCHEMES)
def test_false_certificates_stay_under_alpha(name):
    """A certificate is false if the bound, wherever the rule stopped, lies above the true probability."""
    scheme, generator = SCHEMES[name], np.random.default_rng(3)
    rates = [(scheme.run(walk(scheme.plan, p, REPEATS, generator)) < 1 - p).mean() for p in edges()]
    assert max(rates) <= LIMIT, rates
    assert max(rates) > 0.002, "a scheme that never errs was not tested"


@pytest.mark.parametrize("name", SCHEMES)
def test_no_rule_for_stopping_can_break_the_bound(name):
    """Whoever stops at the look that flatters most still has at most alpha false certificates."""
    scheme = SCHEMES[name]
    for p in (0.5, 0.8413, 0.9772):
        successes = walk(scheme.plan, p, REPEATS, np.random.default_rng(5))
        best = np.min([bound[successes[:, look]] for look, bound in enumerate(scheme.bounds)], axis=0)
        assert (best < 1 - p).mean() <= LIMIT


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule",
    [
        TableStop(radii=RADII),
        RadiusStop(radius=0.5),
        BudgetStop(radii=RADII, samples=12_000_000, images=REPEATS),
    ],
    ids=lambda rule: rule.name,
)
@pytest.mark.parametrize("radius", [0.0, 0.5])
def test_images_under_a_schedule_keep_alpha(rule, radius):
    """The scheduler itself, with 20,000 images at a boundary that compete for the samples of a budget."""
    generator, p = np.random.default_rng(7), 1 - float(NOISE.failure_at(radius))
    plan = rule.plan(2000, ALPHA)
    tracker = Tracker(plan, rule, NOISE, [0] * REPEATS, 20)
    schedule = ByBudget(tracker, rule) if isinstance(rule, BudgetStop) else InTurn(tracker, 1 << 40)
    successes = np.zeros(REPEATS, dtype=np.int64)
    while wave := schedule.wave():
        places, stages = np.array(wave).T
        later, totals = stages > 0, np.array([20, *plan.looks])[stages]
        drawn = np.where(later, tracker.cost(places), 0)
        successes[places] += generator.binomial(drawn, p)
        won = np.where(later, successes[places], 20)
        tracker.observe(places, np.stack([won, totals - won], axis=1))
    assert 0 < (tracker.failure < 1 - p).mean() <= LIMIT
    if isinstance(rule, BudgetStop):
        assert 0 <= schedule.left.sum() < 0.01 * 12_000_000
        assert len(np.unique(tracker.stage)) >= 3, "some images were given more than others"


def test_the_limit_has_teeth():
    """A bound at 1.5 alpha is caught."""
    careless = Scheme(fixed_plan(2000, 1.5 * ALPHA), [0.5])
    rates = [(careless.run(walk(careless.plan, p, REPEATS, np.random.default_rng(3))) < 1 - p).mean() for p in edges()]
    assert max(rates) > LIMIT


def test_naive_peeking_fails():
    """The negative control: Clopper-Pearson with the whole alpha, read every 100 samples until it looks good."""
    looks = tuple(range(100, 10_001, 100))
    p = 1 - float(NOISE.failure_at(0.5))
    successes = np.cumsum(np.random.default_rng(0).binomial(100, p, (2000, len(looks))), axis=1)
    found = np.min([bounds.failure_upper_bound(successes[:, i], n, ALPHA) for i, n in enumerate(looks)], axis=0)
    assert (found < 1 - p).mean() > 4 * ALPHA


@pytest.mark.parametrize("p", [0.9, *(pytest.param(p, marks=pytest.mark.slow) for p in (0.5, 0.99))])
def test_the_randomized_bound_is_exact(p):
    """Its error is alpha itself, where Clopper-Pearson's is less; but never more."""
    generator = np.random.default_rng(1)
    successes, uniforms = generator.binomial(50, p, REPEATS), generator.random(REPEATS)
    rate = (randomized_bound(successes, 50, ALPHA, uniforms) < 1 - p).mean()
    ordinary = (bounds.failure_upper_bound(successes, 50, ALPHA) < 1 - p).mean()
    assert rate <= LIMIT
    assert ordinary <= rate
    if 50 * (1 - p) > 3:  # elsewhere the cap at all successes costs what was gained
        assert rate == pytest.approx(ALPHA, abs=4 * np.sqrt(ALPHA / REPEATS))


@settings(max_examples=30)
@given(st.integers(1, 59), st.floats(0.01, 0.99))
def test_the_randomized_bound_solves_its_equation(k, w):
    failure = float(randomized_bound([k], 60, ALPHA, [w])[0])
    binomial = stats.binom(60, 1 - failure)
    assert binomial.sf(k) + w * binomial.pmf(k) == pytest.approx(ALPHA, rel=1e-6)


def test_the_randomized_bound_never_exceeds_the_ordinary_largest():
    assert float(randomized_bound([60], 60, ALPHA, [0.001])[0]) == float(bounds.failure_upper_bound(60, 60, ALPHA))
    assert float(randomized_bound([0], 60, ALPHA, [0.5])[0]) == 1.0


def test_the_uniforms_are_uniform_and_named_by_seed_and_image():
    drawn = bound_uniforms(7, range(4000))
    assert stats.kstest(drawn, "uniform").pvalue > 1e-3
    assert bound_uniforms(7, [17]) == drawn[17]
    assert not np.any(bound_uniforms(8, range(100)) == drawn[:100])


@pytest.mark.parametrize("p", [(0.5, 0.4, 0.1), (0.45, 0.44, 0.11), (0.34, 0.33, 0.33)])
@pytest.mark.parametrize("top", [1, 2])
def test_the_two_sided_bound_keeps_alpha(p, top):
    """A false certificate claims more than the true probabilities give; the runner-up is not chosen after looking."""
    generator, n = np.random.default_rng(2), 300
    counts = generator.multinomial(n, p, REPEATS)
    plan, ones = fixed_plan(n, ALPHA), np.ones(REPEATS, dtype=int)
    found = certify_looks(np.zeros(REPEATS, dtype=int), counts[:, None], ones, plan, NOISE, "two-sided", top=top)
    truth = float(NOISE.gap_radius(1 - p[0], sorted(p[1:])[-top]))
    assert ((found[0] >= 0) & (found[1] > max(truth, 0))).mean() <= LIMIT


def test_the_two_sided_bound_certifies_below_one_half():
    """Many classes: 0.45 against many of 0.01 is certain, though no majority."""
    counts = np.array([[4500, *[100] * 55]])
    plan = fixed_plan(10_000, 0.001)
    one, two = (certify_looks([0], counts[:, None], [1], plan, NOISE, bound) for bound in ("one-sided", "two-sided"))
    assert one[0][0] == bounds.ABSTAIN
    assert two[0][0] == 0
    low = stats.beta.ppf(0.0005, 4500, 5501)
    high = stats.beta.ppf(1 - 0.001 / (2 * 55), 101, 9900)
    assert two[1][0] == pytest.approx(0.25 * (stats.norm.ppf(low) - stats.norm.ppf(high)))


def test_top_k_reaches_farther_the_more_classes_it_allows():
    counts = np.array([[300, 500, 100, 60, 40]])
    plan = fixed_plan(1000, 0.001)
    radii = [certify_looks([0], counts[:, None], [1], plan, NOISE, "two-sided", top=top)[1][0] for top in (1, 2, 3, 4)]
    assert radii[0] == 0.0, "the class is not the first"
    assert radii[1:] == sorted(radii[1:])
    assert radii[1] > 0


@given(st.integers(0, 300), st.floats(0.001, 0.2))
def test_the_lower_bound_of_failures_is_scipys(failures, alpha):
    expected = stats.beta.ppf(alpha, failures, 301 - failures) if failures else 0.0
    assert failure_lower_bound([300 - failures], 300, alpha)[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n", [10, 200, 201, 5000, 100_000])
def test_plans_spend_alpha_and_end_at_n(n):
    for plan in (table_plan(n, 0.001), even_plan(n, 0.001), dense_plan(n, 0.001)):
        assert plan.looks[-1] == n
        assert sum(plan.alphas) <= 0.001 * (1 + 1e-12)
        assert sum(plan.at(0.01).alphas) <= 0.01 * (1 + 1e-12)
    assert dense_plan(10**6, 0.001).looks[0] == 107
    assert table_plan(100_000, 0.001).looks == (200, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 100_000)


def test_the_last_look_loses_almost_nothing():
    plan = table_plan(100_000, 0.001)
    assert GaussianNoise(1.0).radius(plan.failure(100_000, 9)) == pytest.approx(3.808, abs=1e-3)


def test_plans_that_would_not_hold_are_refused():
    with pytest.raises(UsageError, match="sum to at most alpha = 0.001, but got 0.002"):
        Plan((10, 20), (0.001, 0.001), 0.001)
    with pytest.raises(UsageError, match="increasing"):
        Plan((20, 10), (0.0005, 0.0005), 0.001)
    with pytest.raises(UsageError, match="one value between 0 and 1 per look"):
        Plan((10, 20), (0.001,), 0.001)
    with pytest.raises(UsageError, match="betting confidence sequence, which is no longer supported"):
        plan_of({"confidence": "betting", "looks": [10], "alphas": [0.001]}, 0.001)


def test_giving_up_is_never_a_certificate():
    """Undecided is only what is still possible: not what is proven, refuted, or out of reach."""
    plan = table_plan(1000, 0.001)
    needs = np.array([0.1])
    for successes, more in ((188, True), (150, False), (200, False)):
        failure = plan.failure([successes], 0)
        assert undecided(plan, needs, [successes], 0, failure).tolist() == [more], successes
    assert not undecided(plan, [1e-9], [200], 0, [0.02])[0], "1,000 samples prove no failure of 1e-9"


def test_a_rule_that_can_prove_nothing_is_refused():
    """CERTIFY answers from 10 samples on; looks that share alpha need more, and a radius more than that."""
    noise, anything, far = GaussianNoise(0.5), RadiusStop(), RadiusStop(radius=1.5)
    for rule, n, message in (
        (anything, 12, "nothing"),
        (far, 1000, "a radius of at most 1.1"),
        (far, 4000, "a radius of at most 1.3"),
    ):
        with pytest.raises(UsageError, match=f"unanimous votes certify {message}"):
            check_reach(rule.plan(n, 0.001), rule.needs(noise), noise)
    for rule, n in ((anything, 13), (far, 100_000), (TableStop(radii=(9.0,)), 10)):
        check_reach(rule.plan(n, 0.001), rule.needs(noise), noise)


@pytest.mark.parametrize("rule", [TableStop, RadiusStop, BudgetStop])
def test_rules_take_keywords_only(rule):
    """A radius must not end up in `skip_wrong`."""
    with pytest.raises(TypeError, match="positional"):
        rule(1.0)


@pytest.mark.parametrize("radius", ["x", None, [0.5], float("nan"), float("inf"), -1.0])
def test_a_rule_names_its_own_argument(radius):
    with pytest.raises(UsageError, match="Expected `radius` to be"):
        RadiusStop(radius=radius)
