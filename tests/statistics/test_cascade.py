"""The cascade's certificates: against a scalar oracle, and as often false as alpha allows."""

import numpy as np
import pytest
from scipy import stats

from smoothcert.errors import UsageError
from smoothcert.statistics.bounds import certify_counts
from smoothcert.statistics.cascade import CascadeRule


def oracle(rule, votes):
    """Return class and radius of one input, from SciPy's beta distribution, one level after the other."""
    levels, reach = len(rule.sigmas), []
    shares = [rule.first_share] + [(1 - rule.first_share) / (2 * levels - 2)] * (2 * levels - 2)
    for level, (sigma, (selection, estimation)) in enumerate(zip(rule.sigmas, votes, strict=True)):
        n, chosen = sum(estimation), max(range(len(selection)), key=lambda c: (selection[c], -c))
        k, most = estimation[chosen], max(estimation)
        low = stats.beta.ppf(rule.alpha * shares[level], k, n - k + 1) if k else 0.0
        if low > rule.p0:
            reach.append(sigma * (stats.norm.ppf(low) - stats.norm.ppf(rule.p0)))
            return chosen, min(reach)
        high = stats.beta.ppf(1 - rule.alpha * shares[-1], most + 1, n - most) if most < n else 1.0
        if high >= rule.p0:
            return -1, 0.0
        reach.append(sigma * (stats.norm.ppf(rule.p0) - stats.norm.ppf(high)))
    return -1, 0.0


def draw(generator, truth, n0, n, images):
    """Draw the votes of images whose class probabilities at each level are `truth`."""
    return [tuple(generator.multinomial(count, p, size=images) for count in (n0, n)) for p in truth]


@pytest.mark.parametrize("p0", [0.5, 0.6, 0.9])
@pytest.mark.parametrize("sigmas", [(1.0, 0.5), (1.0, 0.5, 0.25), (0.7, 0.6, 0.3, 0.1)])
def test_certificates_agree_with_a_scalar_oracle(p0, sigmas):
    generator = np.random.default_rng(5)
    rule, answered = CascadeRule(sigmas, p0, alpha=0.01, first_share=0.7), set()
    for _ in range(60):
        truth = [generator.dirichlet([generator.choice([0.1, 3.0])] * 4) for _ in sigmas]
        votes = draw(generator, truth, 20, 400, 3)
        found = rule.certify(votes)
        for image in range(3):
            one = [tuple(stage[image].tolist() for stage in level) for level in votes]
            prediction, radius = oracle(rule, one)
            assert found.prediction[image] == prediction
            assert found.radius[image] == pytest.approx(radius, rel=1e-9, abs=1e-12)
            answered.add(int(found.level[image]))
    assert answered == {-1, *range(len(sigmas))}


def test_a_cascade_whose_first_level_answers_is_that_level_with_less_alpha():
    selection, estimation = np.array([[100, 0], [10, 90]]), np.array([[9000, 1000], [1, 9999]])
    silent = np.array([[50, 50], [50, 50]])
    found = CascadeRule((1.0, 0.5)).certify([(selection, estimation), (silent, 100 * silent)])
    prediction, radius, _ = certify_counts(selection, estimation, 1.0, 0.0008)
    assert found.prediction.tolist() == prediction.tolist()
    assert found.radius.tolist() == radius.tolist(), "bit for bit: Phi^-1(0.5) is 0"


def true_answer(truth, rule):
    """Return class and radius of the cascade itself; half-spaces reach this radius, so no larger one is true."""
    reach = [np.inf]
    for sigma, p in zip(rule.sigmas, truth, strict=True):
        gap = sigma * (stats.norm.ppf(p.max()) - stats.norm.ppf(rule.p0))
        if p.max() > rule.p0:
            return int(p.argmax()), min(*reach, gap)
        reach.append(-gap)
    return -1, 0.0


def false_rate(rule, truth, images, seed=0, n0=10, n=200, change=lambda votes: votes):
    """Return the share of images with a false certificate."""
    truth = [np.array(p) for p in truth]
    votes = change(draw(np.random.default_rng(seed), truth, n0, n, images))
    found, (prediction, radius) = rule.certify(votes), true_answer(truth, rule)
    wrong = (found.prediction >= 0) & ((found.prediction != prediction) | (found.radius > radius * (1 + 1e-12)))
    return wrong.mean()


def boundary(p0):
    """Truths where a bound that fails makes a false certificate: a level just silent, or with a tiny radius."""
    just, sure = [p0, 1 - p0, 0.0], [0.0, 0.02, 0.98]
    return [
        [just, sure, sure],
        [[p0, (1 - p0) / 2, (1 - p0) / 2], sure, sure],
        [[p0 + 1e-9, 1 - p0 - 1e-9, 0.0], sure, sure],
        [[0.35, 0.35, 0.3], just, sure],
        [[0.35, 0.35, 0.3], [0.34, 0.33, 0.33], just],
        [[0.9, 0.1, 0.0], sure, sure],
        [just, just, just],
    ]


def limit(alpha, images):
    return alpha + 4 * np.sqrt(alpha / images)


@pytest.mark.parametrize("p0", [0.5, 0.7])
@pytest.mark.parametrize("share", [0.8, 0.2])
def test_false_certificates_are_as_rare_as_promised_at_the_boundary(p0, share):
    rule = CascadeRule((1.0, 0.5, 0.25), p0, alpha=0.1, first_share=share)
    rates = [false_rate(rule, truth, 5000) for truth in boundary(p0)]
    assert max(rates) <= limit(0.1, 5000)
    assert max(rates) > 0.02, "truths at the boundary make false certificates, or this test could not fail"


@pytest.mark.slow
def test_false_certificates_at_many_truths():
    generator, images = np.random.default_rng(1), 40_000
    for sigmas in ((1.0, 0.5), (1.0, 0.5, 0.25)):
        for p0 in (0.5, 0.8):
            rule = CascadeRule(sigmas, p0, alpha=0.02)
            truths = [truth[: len(sigmas)] for truth in boundary(p0)]
            truths += list(generator.dirichlet([0.5] * 3, size=(4, len(sigmas))))
            rates = [false_rate(rule, truth, images, seed, n=500) for seed, truth in enumerate(truths)]
            assert 0.01 < max(rates) <= limit(0.02, images)


def test_bounds_that_do_not_share_alpha_would_fail():
    """Each of the five bounds spends all of it: both bounds of the first level fail too often together."""
    greedy = CascadeRule((1.0, 0.5, 0.25), alpha=0.5, first_share=0.2)
    assert [greedy.lower_alpha(level) for level in range(3)] == pytest.approx([0.1] * 3)
    assert false_rate(greedy, boundary(0.5)[1], 5000, n0=100) > 0.13


def test_an_upper_bound_of_the_selected_class_alone_would_fail():
    """Few votes select the wrong class of two likely ones; its few votes don't say that the level is silent."""

    def hide_others(votes):
        """Spread all votes but those of the selected class over classes of their own."""
        selection, estimation = votes[0]
        chosen = selection.argmax(axis=1)
        kept = np.take_along_axis(estimation, chosen[:, None], axis=1)[:, 0]
        spread = np.zeros((len(chosen), 203), dtype=np.int64)
        for row, (label, count) in enumerate(zip(chosen, kept, strict=True)):
            spread[row, 3 : 203 - count] = 1
            spread[row, label] = count
        return [(selection, spread), *votes[1:]]

    rule, truth = CascadeRule((1.0, 0.5), alpha=0.1), [[0.6, 0.4, 0.0], [0.0, 0.02, 0.98]]
    assert false_rate(rule, truth, 2000, n0=1, change=hide_others) > 0.2
    assert false_rate(rule, truth, 2000, n0=1) <= limit(0.1, 2000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sigmas": (1.0,)}, "at least two levels"),
        ({"sigmas": (0.5, 1.0)}, "decreasing sigma, but got 0.5 1"),
        ({"sigmas": (0.5, 0.5)}, "decreasing sigma"),
        ({"sigmas": (0.5, -1.0)}, "`sigma` to be > 0"),
        ({"p0": 0.49}, "`p0` to be at least 0.5 and below 1, but got 0.49"),
        ({"p0": 1.0}, "`p0` to be at least 0.5"),
        ({"p0": float("nan")}, "`p0` to be at least 0.5"),
        ({"alpha": 0.0}, "`alpha`"),
        ({"first_share": 1.0}, "`first_share` to be between 0 and 1"),
    ],
)
def test_settings_out_of_range(options, message):
    with pytest.raises(UsageError, match=message):
        CascadeRule(**{"sigmas": (1.0, 0.5), **options})


def test_too_few_votes_are_noticed():
    with pytest.raises(UsageError, match="prove a class probability above `p0` = 0.99"):
        CascadeRule((1.0, 0.5), p0=0.99).check_reach(100)
    with pytest.raises(UsageError, match="votes of 2 levels, but got 1"):
        CascadeRule((1.0, 0.5)).certify([([[1, 0]], [[1, 0]])])
