"""A catalog of badly behaved models: each is refused, warned about or certified correctly. Honest ones pass."""

import random

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch import nn
from torch.nn import functional

import smoothcert
from smoothcert.errors import Notice, SmoothcertError, UsageError
from smoothcert.smoothing import independence
from smoothcert.smoothing.score_margins import same_margins

SIGMA = 0.5
DEPENDENT = "not independent and prove nothing"
INPUT = torch.tensor([0.1, 0.3, -0.2, 0.05])


def scores(x):
    """Two classes, with x_0 = 0 between them: the exact smoothed radius of an input is |x_0|."""
    return torch.stack([x[:, 0], -x[:, 0]], dim=1)


def certify(model, x=INPUT, num_classes=None, n=1000, sigma=SIGMA, **options):
    return smoothcert.SmoothedClassifier(model, sigma, num_classes, **options).certify(x, n=n)


def masked(model, value, column=2):
    """Add a class that never wins."""

    def score(x):
        found = model(x)
        return torch.cat([found, torch.full((len(found), column - 1), value)], dim=1)

    return score


# Models that depend on their batch.


def batchnorm(**options):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2, **options))


def in_training_mode():
    network = batchnorm().train()
    return lambda x: network(x)


def without_statistics():
    return batchnorm(track_running_stats=False)


def majority(x):
    winner = (x[:, 0] < 0).float().mean().round().long()
    return functional.one_hot(winner, 2).expand(len(x), 2)


def outlier(x):
    """Decides for all inputs by the smallest one: few inputs are below the limit, but most batches have one."""
    return functional.one_hot((x[:, 0] < -0.9).any().long(), 2).expand(len(x), 2)


def softmax_over_the_batch(x):
    return scores(x).softmax(dim=0)


def centered(x):
    return scores(x - x.mean(dim=0))


def scaled_by_the_batch(x):
    return scores(x) / x.abs().max()


def behind_a_large_offset(x):
    return 1e5 + scores(x - x.mean(dim=0))


def attention_across_the_batch(x):
    return scores((x @ x.T).softmax(dim=1) @ x)


def neighbors(x):
    return scores(x + 0.5 * x.roll(1, dims=0))


def sorts_its_batch(x):
    return scores(x[x[:, 0].argsort()])


def quantized():
    with pytest.warns(DeprecationWarning, match="quantization"):
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 3)), {nn.Linear})


# Models that depend on the position in the batch.


def ramp(x):
    return scores(x + 0.01 * torch.arange(len(x)).unsqueeze(1))


def first_is_special(x):
    found = scores(x)
    found[0] = torch.tensor([1.0, 0.0])
    return found


def last_is_forgotten(x):
    found = scores(x)
    found[-1] = 0
    return found


def same_masks_in_every_call(x):
    torch.manual_seed(3)
    return scores(functional.dropout(x, 0.5))


# Models with randomness or a state that the inputs of a batch share.


def shared_mask(x):
    return scores(x * functional.dropout(torch.ones(4), 0.5))


def coin(x):
    return functional.one_hot(torch.randint(2, ()), 2).expand(len(x), 2)


def coin_of_python(x):
    return functional.one_hot(torch.tensor(random.getrandbits(1)), 2).expand(len(x), 2)


def coin_of_numpy(seed=0):
    generator = np.random.default_rng(seed)
    return lambda x: np.tile(np.eye(2)[generator.integers(2)], (len(x), 1))


def shared_and_own_noise(x):
    return scores(x + torch.randn(4) + 0.3 * torch.randn(x.shape))


def batchnorm_with_dropout():
    network = nn.Sequential(nn.Dropout(0.3), batchnorm()).train()
    return lambda x: network(x)


def batchnorm_with_private_noise():
    generator = np.random.default_rng(0)
    return lambda x: scores(x - x.mean(dim=0) + torch.as_tensor(generator.normal(size=x.shape)))


class Counter:
    """Shifts its scores with every call from call `start` on."""

    def __init__(self, start=0, step=0.05):
        self.calls, self.start, self.step = 0, start, step

    def __call__(self, x):
        self.calls += 1
        return scores(x + self.step * max(0, self.calls - self.start))


class Adapting(nn.Module):
    """Subtracts a running mean of all inputs, also in eval mode."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        found = scores(x - self.mean)
        self.mean.lerp_(x.mean(dim=0), 0.1)
        return found


class Late:
    """Returns the scores of the previous call."""

    def __init__(self):
        self.found = None

    def __call__(self, x):
        before, self.found = self.found, scores(x)
        return self.found if before is None or len(before) != len(x) else before


class KeepingInputs:
    """Subtracts the inputs of the previous call, which it did not copy."""

    def __init__(self):
        self.inputs = None

    def __call__(self, x):
        before, self.inputs = self.inputs, x
        return scores(x if before is None or len(before) != len(x) else x - 0.5 * before)


class Remembering:
    """Caches scores by the shape of the batch."""

    def __init__(self):
        self.found = {}

    def __call__(self, x):
        return self.found.setdefault(x.shape, scores(x))


class Stuck:
    """Answers with the first class from call `start` on."""

    def __init__(self, start):
        self.calls, self.start = 0, start

    def __call__(self, x):
        self.calls += 1
        return scores(x) if self.calls < self.start else torch.tensor([1.0, 0.0]).expand(len(x), 2)


class RunningDecision:
    """Decides for all inputs by a running mean."""

    def __init__(self):
        self.mean = 0.0

    def __call__(self, x):
        self.mean += 0.5 * (float(x[:, 0].mean()) - self.mean)
        return torch.tensor([[1.0, 0.0], [0.0, 1.0]])[[int(self.mean < 0)] * len(x)]


class RememberingAddresses:
    """Caches scores by the address of the inputs in memory."""

    def __init__(self):
        self.found = {}

    def __call__(self, x):
        return self.found.setdefault((x.data_ptr(), len(x)), scores(x))


def majority_within_rounding(offset):
    def score(x):
        return offset + offset * 2e-6 * (2 * majority(x) - 1)

    return score


def ties_broken_by_the_batch(x):
    found = torch.ones(len(x), 2)
    if x[:, 0].mean() < 0:
        found[:, 1] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    return found


def quantized_by_the_batch(x):
    low, high = x.min(), x.max()
    return sudden(low + ((x - low) / (high - low) * 4).round() / 4 * (high - low))


def only_in_large_batches(x):
    return scores(x) if len(x) <= 2 else scores(x.mean(dim=0, keepdim=True)).expand(len(x), 2)


def unless_rows_repeat(x):
    return scores(x) if len(x.unique(dim=0)) < len(x) else scores(x.mean(dim=0, keepdim=True)).expand(len(x), 2)


def half_of_the_second_class_is_moved(x):
    found = scores(x)
    found[1::2, 1] = torch.where(found[1::2, 1] > 0.1, -1.0, found[1::2, 1])
    return found


REFUSED = {
    "BatchNorm in training mode": in_training_mode,
    "BatchNorm without statistics": without_statistics,
    "BatchNorm without statistics, masked with -1e3": lambda: masked(without_statistics(), -1e3),
    "BatchNorm without statistics, masked with -1e9": lambda: masked(without_statistics(), -1e9),
    "BatchNorm without statistics, masked with -inf": lambda: masked(without_statistics(), -torch.inf),
    "BatchNorm without statistics, eight masked": lambda: masked(without_statistics(), -1e9, column=9),
    "BatchNorm and dropout": batchnorm_with_dropout,
    "batch mean and private noise": batchnorm_with_private_noise,
    "majority": lambda: majority,
    "majority, masked": lambda: masked(majority, -torch.inf),
    "softmax over the batch": lambda: softmax_over_the_batch,
    "centered": lambda: centered,
    "scaled": lambda: scaled_by_the_batch,
    "offset": lambda: behind_a_large_offset,
    "attention": lambda: attention_across_the_batch,
    "neighbors": lambda: neighbors,
    "sorting": lambda: sorts_its_batch,
    "quantized": quantized,
    "ramp": lambda: ramp,
    "first is special": lambda: first_is_special,
    "last is forgotten": lambda: last_is_forgotten,
    "same masks in every call": lambda: same_masks_in_every_call,
    "shared mask": lambda: shared_mask,
    "coin": lambda: coin,
    "coin of Python": lambda: coin_of_python,
    "coin of NumPy": coin_of_numpy,
    "shared and own noise": lambda: shared_and_own_noise,
    "counter": Counter,
    "counter that starts late": lambda: Counter(start=60),
    "adapting": Adapting,
    "late": Late,
    "keeping inputs": KeepingInputs,
    "remembering": Remembering,
    "remembering addresses": RememberingAddresses,
    "stuck from the tenth call on": lambda: Stuck(10),
    "stuck from the fiftieth call on": lambda: Stuck(50),
    "running decision": RunningDecision,
    "majority within rounding": lambda: majority_within_rounding(1e6),
    "ties broken by the batch": lambda: ties_broken_by_the_batch,
    "quantized by the batch": lambda: quantized_by_the_batch,
    "only in large batches": lambda: only_in_large_batches,
    "unless rows repeat": lambda: unless_rows_repeat,
    "half of the second class is moved": lambda: half_of_the_second_class_is_moved,
}


@pytest.mark.parametrize("micro_batch", [None, 8, 3])
@pytest.mark.parametrize("name", REFUSED)
def test_models_that_prove_nothing_are_refused(name, micro_batch):
    if (name, micro_batch) == ("shared and own noise", 3):
        return  # hardly correlated, and found only in larger batches
    with pytest.raises(UsageError, match=DEPENDENT):
        certify(REFUSED[name](), n=100 * (micro_batch or 256), micro_batch=micro_batch)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("majority", "change with the rest of the batch"),
        ("shared mask", "change from call to call"),
        ("counter", "change from call to call"),
        ("ramp", "change with its position in the batch"),
    ],
)
def test_the_error_says_what_scores_depend_on(name, reason):
    with pytest.raises(UsageError, match=reason):
        certify(REFUSED[name]())


@pytest.mark.parametrize("seed", range(20))
def test_no_coin_is_lucky(seed):
    with pytest.raises(UsageError, match=DEPENDENT):
        certify(coin_of_numpy(seed))


@pytest.mark.parametrize("value", [-1e3, -1e6, -torch.inf])
@pytest.mark.parametrize("place", [-0.15, 0.15])
def test_contradicting_certificates_are_refused(value, place):
    """Two inputs 0.3 apart, each certified for its own class with a radius of 3.2 sigma without the check."""
    with pytest.raises(UsageError, match=DEPENDENT):
        certify(masked(lambda x: scores(x.mean(dim=0, keepdim=True)).expand(len(x), 2), value), INPUT * 0 + place)


def test_a_convolutional_network_with_a_masked_class_is_refused():
    norm = nn.BatchNorm2d(4, track_running_stats=False)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    with pytest.raises(UsageError, match="change with the rest of the batch"):
        certify(masked(network, -1e3), torch.rand(1, 8, 8), micro_batch=32)


def with_batch_statistics():
    """BatchNorm without running statistics, as test-time adaptation sets it up."""
    network = smoothcert.create_model("cifar_resnet20")
    network.network.bn1.running_mean = network.network.bn1.running_var = None
    return network


def with_a_hook():
    network = smoothcert.create_model("lenet")
    network.network.fc2.register_forward_hook(lambda _, inputs, found: found.mean(dim=0).expand_as(found))
    return network


def with_another_forward():
    network = smoothcert.create_model("lenet")
    score = network.forward
    network.forward = lambda x: score(x).mean(dim=0).expand(len(x), 10)
    return network


def with_another_layer():
    network = smoothcert.create_model("lenet")
    network.network.fc1 = nn.Sequential(network.network.fc1, nn.BatchNorm1d(500, track_running_stats=False))
    return network


@pytest.mark.parametrize("in_ensemble", [False, True])
@pytest.mark.parametrize("make", [with_batch_statistics, with_a_hook, with_another_forward, with_another_layer])
def test_networks_of_the_package_are_checked_if_they_were_changed(make, in_ensemble):
    model = make()
    shape = (3, 32, 32) if make is with_batch_statistics else (1, 28, 28)
    whole = smoothcert.create_model(model.architecture)
    smoothed = smoothcert.SmoothedClassifier(
        smoothcert.Ensemble([whole, model]) if in_ensemble else model, SIGMA, micro_batch=32
    )
    with pytest.raises(UsageError, match=DEPENDENT):
        smoothed.counts(torch.rand(shape), 64)


@pytest.mark.parametrize("place", [0.02, 0.12, 0.3, 0.6])
def test_a_majority_of_any_size_is_refused(place):
    """Without the check, x_0 = 0.12 is certified with a radius of 1.6."""
    with pytest.raises(UsageError, match=DEPENDENT):
        certify(majority, INPUT * 0 + place)


@pytest.mark.parametrize("value", [-1e3, -torch.inf])
def test_outliers_that_decide_for_their_batch_are_refused(value):
    """Without the check, the class that hardly any noisy input has alone is certified with a radius of 1.2."""
    with pytest.raises(UsageError, match=DEPENDENT):
        certify(masked(outlier, value))


# NaN.


@pytest.mark.parametrize("share", [1.0, 0.01])
def test_nan_is_an_error_not_a_vote(share):
    def sometimes(x):
        return scores(x).masked_fill(torch.rand(len(x), 1) < share, torch.nan)

    with pytest.raises(SmoothcertError, match="returned NaN for"):
        certify(sometimes)


def test_nan_for_a_whole_batch_now_and_then_is_refused():
    with pytest.raises(SmoothcertError, match=f"{DEPENDENT}|returned NaN"):
        certify(lambda x: scores(x) if random.random() < 0.8 else scores(x) * torch.nan)


# Odd models that are functions of one input, or random for each: certified correctly.


def writes_into_its_inputs(x):
    return scores(x.clone()) + 0 * x.zero_().sum()


def overflows(x):
    """Infinite for both classes beyond 0.4: the first one wins there, as it does for all x_0 > 0."""
    return torch.where(x[:, :1] > 0.4, torch.inf, scores(x))


def ties(x):
    """Multiples of a half: ties, up to 0.25 from the border, go to the first class."""
    return scores(x + 0.25).div(0.5).trunc()


def sudden(x):
    return functional.one_hot((x[:, 0] < 0).long(), 2)


def own_dropout(x):
    return scores(functional.dropout(x, 0.5)) * torch.tensor([1.0, 1.0])


def own_coin(x):
    """Picks the second class for a tenth of all inputs, whatever they are."""
    return torch.where(torch.rand(len(x), 1) < 0.1, torch.tensor([0, 1]), sudden(x))


def rare_coin():
    generator = np.random.default_rng(0)
    return lambda x: torch.where(torch.as_tensor(generator.random((len(x), 1)) < 0.004), -scores(x), scores(x))


def exact(p):
    return SIGMA * stats.norm.ppf(p)


STRONG = 0.4 + 0 * INPUT
AT_ZERO = stats.norm.cdf(0.4 / SIGMA)  # share of noisy inputs with x_0 > 0
CERTIFIED = {
    "writes into its inputs": (lambda: writes_into_its_inputs, 0.4),
    "overflows": (lambda: overflows, 0.4),
    "ties": (lambda: ties, 1.15),
    "sudden": (lambda: sudden, 0.4),
    "honest mask of -inf": (lambda: masked(scores, -torch.inf), 0.4),
    "honest mask of -1e9": (lambda: masked(scores, -1e9), 0.4),
    "huge scores": (lambda: lambda x: 1e30 * scores(x), 0.4),
    "tiny scores": (lambda: lambda x: 1e-30 * scores(x), 0.4),
    "large offset": (lambda: lambda x: scores(x) - 1e4, 0.4),
    "half precision": (lambda: lambda x: scores(x).half(), 0.4),
    "integers": (lambda: lambda x: (100 * scores(x)).long(), 0.4 + 0.01),
    "coin for each input": (lambda: own_coin, exact(0.9 * AT_ZERO)),
    "rare coin for each input": (rare_coin, exact(0.996 * AT_ZERO + 0.004 * (1 - AT_ZERO))),
    "dropout for each input": (lambda: own_dropout, exact((1 + AT_ZERO) / 2)),  # a tie goes to the first class
}


@pytest.mark.parametrize("micro_batch", [None, 3])
@pytest.mark.parametrize("name", CERTIFIED)
def test_odd_models_get_a_radius_that_is_true(name, micro_batch):
    make, truth = CERTIFIED[name]
    found = certify(make(), STRONG, n=2_000 if micro_batch else 20_000, micro_batch=micro_batch)
    assert found.prediction == 0
    assert 0.7 * truth < found.radius <= truth


def test_a_constant_model_is_certified_for_its_class():
    found = certify(lambda x: torch.zeros(len(x), 3), n=1000)
    assert (found.prediction, found.counts.tolist()) == (0, [1000, 0, 0])


@pytest.mark.parametrize("model", [shared_mask, Counter()])
def test_one_input_at_a_time_is_warned_about_where_scores_change(model):
    with pytest.warns(Notice, match="keeps a state"):
        certify(model, n=20, micro_batch=1)


@pytest.mark.filterwarnings("error")
def test_one_input_at_a_time_may_depend_on_its_batch():
    assert certify(scaled_by_the_batch, STRONG, n=100, micro_batch=1).prediction == 0


# Honest models: no false alarm.


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.layer(x.flatten(1)[:, :128].view(-1, 8, 16)).mean(dim=1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.LSTM(28, 16, batch_first=True), nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.layer(x[:, 0])[0][:, -1])


def neighbors_of_digits():
    generator = np.random.default_rng(0)
    model = KNeighborsClassifier(4).fit(generator.random((50, 784)), np.arange(50) % 5)  # votes with many ties
    return lambda x: model.predict_proba(x.flatten(1).numpy())


def regression():
    generator = np.random.default_rng(0)
    model = LogisticRegression().fit(generator.random((50, 784)), np.arange(50) % 5)
    return lambda x: model.decision_function(x.flatten(1).numpy())


def flat(*layers):
    return nn.Sequential(nn.Flatten(), *layers)


HONEST = {
    "LeNet": (lambda: nn.Sequential(smoothcert.create_model("lenet")), (1, 28, 28)),
    "ResNet-20": (lambda: nn.Sequential(smoothcert.create_model("cifar_resnet20")), (3, 32, 32)),
    "MLP": (lambda: flat(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 5)), (1, 28, 28)),
    "softmax": (lambda: flat(nn.Linear(784, 5), nn.Softmax(dim=1)), (1, 28, 28)),
    "sharp softmax": (lambda: lambda x: (100 * x.flatten(1)[:, :5]).softmax(dim=1), (1, 28, 28)),
    "LayerNorm": (lambda: flat(nn.Linear(784, 64), nn.LayerNorm(64), nn.Linear(64, 5)), (1, 28, 28)),
    "GroupNorm": (
        lambda: nn.Sequential(nn.Conv2d(1, 8, 5), nn.GroupNorm(2, 8), nn.AvgPool2d(24), nn.Flatten()),
        (1, 28, 28),
    ),
    "dropout in eval mode": (lambda: flat(nn.Dropout(0.5), nn.Linear(784, 5)).train(), (1, 28, 28)),
    "attention": (Attention, (1, 28, 28)),
    "LSTM": (Recurrent, (1, 28, 28)),
    "nearest neighbors": (neighbors_of_digits, (1, 28, 28)),
    "regression": (regression, (1, 28, 28)),
    "bfloat16": (lambda: lambda x: x.flatten(1).bfloat16() @ torch.ones(784, 5).bfloat16(), (1, 28, 28)),
    "random for each input": (lambda: lambda x: x.flatten(1)[:, :5] + torch.randn(len(x), 5), (1, 28, 28)),
    "dropout for each input": (lambda: lambda x: functional.dropout(x, 0.5).flatten(1)[:, :5], (1, 28, 28)),
}


@pytest.mark.filterwarnings("error::smoothcert.errors.Notice")
@pytest.mark.parametrize("micro_batch", [32, 5])
@pytest.mark.parametrize("name", HONEST)
def test_honest_models_raise_no_alarm(name, micro_batch):
    make, shape = HONEST[name]
    model = make()
    for sigma in (0.12, 1.0):
        for x in (torch.rand(shape), torch.zeros(shape)):
            smoothed = smoothcert.SmoothedClassifier(model, sigma, micro_batch=micro_batch)
            assert smoothed.counts(x, 30).sum() == 30


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_honest_network_passes_in_full_micro_batches(precision):
    model = nn.Sequential(smoothcert.create_model("lenet"))
    assert smoothcert.SmoothedClassifier(model, 0.25, precision=precision).counts(torch.rand(1, 28, 28), 9).sum() == 9


def test_random_models_are_rarely_refused():
    """The test of random models is conservative: no alarm in hundreds of checks, at any probability of a vote."""
    for seed in range(200):
        generator, share = np.random.default_rng(seed), 10 ** -(seed % 8 / 2)
        model = lambda x, g=generator, s=share: np.eye(2)[(g.random(len(x)) < s / 2).astype(int)]  # noqa: E731
        smoothcert.SmoothedClassifier(model, SIGMA).counts(INPUT, 10)


def test_global_random_numbers_are_left_alone():
    for generator in (torch.initial_seed, lambda: random.seed(1), lambda: np.random.seed(1)):  # noqa: NPY002
        generator()
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1]  # noqa: NPY002
    certify(scores, n=20)
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert (states[2] == np.random.get_state()[1]).all()  # noqa: NPY002


# Later checks and their cost.


class Counting:
    def __init__(self):
        self.calls = []

    def __call__(self, x):
        self.calls.append(len(x))
        return scores(x)


@pytest.mark.parametrize("micro_batch", [256, 10_112])
def test_a_check_costs_less_than_one_percent_of_a_certification(micro_batch):
    model = Counting()
    certify(model, n=100_000, num_classes=2, micro_batch=micro_batch)
    votes = -(-100_100 // micro_batch) * micro_batch
    assert sum(model.calls) - votes <= 0.01 * 100_100


def test_later_checks_cost_four_calls_in_200_000_votes():
    model = Counting()
    smoothed = smoothcert.SmoothedClassifier(model, SIGMA, 2)
    smoothed.counts(INPUT, 256)
    first = sum(model.calls)
    for _ in range(100):
        smoothed.counts(INPUT, 25_600)
    extra = sum(model.calls) - first - 100 * 25_600
    assert 0 < extra <= 0.005 * 100 * 25_600
    assert extra % (3 * 224 + 12) == 0


def test_a_model_for_micro_batches_only_is_checked_with_them():
    model = Counting()

    def fixed(x):
        return model(x.view(64, 4))

    assert certify(fixed, STRONG, n=1000, micro_batch=64).prediction == 0
    assert set(model.calls) == {64}
    with pytest.raises(UsageError, match=DEPENDENT):
        certify(lambda x: majority(x.view(64, 4)), micro_batch=64)


def test_a_model_that_changes_later_is_refused_at_a_random_moment(monkeypatch):
    monkeypatch.setattr(independence, "_GAP", 2_000)

    def refused_at():
        model = Counter(start=150)
        smoothed = smoothcert.SmoothedClassifier(model, SIGMA, 2, micro_batch=8)
        try:
            for _ in range(200):
                smoothed.counts(INPUT, 80)
        except UsageError:
            return model.calls
        return None

    calls = refused_at()
    assert calls is not None
    assert calls > 150
    assert calls == refused_at(), "the same moment every time"


def test_weights_may_change_between_votes(monkeypatch):
    monkeypatch.setattr(independence, "_GAP", 1)
    model = nn.Linear(4, 2)
    smoothed = smoothcert.SmoothedClassifier(model, SIGMA, micro_batch=8)
    for _ in range(5):
        assert int(smoothed.counts(INPUT, 2000).sum()) == 2000, "it is not refused"
        nn.init.normal_(model.weight)


def test_margins_are_compared_class_by_class():
    first = torch.tensor([[1.0, 0.9, -1e3], [1.0, 0.9, -torch.inf], [1.0, torch.nan, 0.0], [torch.inf, 1.0, 0.0]])
    assert same_margins(first, first, 1e-3, 0).all()
    assert same_margins(first, first + 5, 1e-3, 0).all(), "the same margins"
    changed = first.clone()
    changed[:2, 1], changed[2, 1], changed[3, 0] = 1.1, 0.0, 9.0
    assert not same_margins(first, changed, 1e-3, 0).any()


# Noise below the resolution of the arithmetic.


@pytest.mark.parametrize("noise", ["gaussian", "uniform"])
@pytest.mark.parametrize(
    ("x", "sigma"),
    [
        (torch.tensor([1.7e7, 0.0], dtype=torch.float64), 0.25),
        (torch.tensor([-1.7e7, 0.0]), 100.0),
        (torch.tensor([1.0, 0.0]), 1e-8),
        (torch.rand(1, 4, 4), 1e-5),
    ],
)
def test_noise_below_the_resolution_of_float32_is_refused(x, sigma, noise):
    smoothed = smoothcert.SmoothedClassifier(lambda x: x.flatten(1)[:, :2], sigma, noise=noise)
    with pytest.raises(UsageError, match="`sigma` to be at least .*1,024 times the distance between float32 numbers"):
        smoothed.certify(x, n=100)


def test_noise_of_a_thousand_steps_gives_true_radii():
    """Inputs in float64 halfway between float32 numbers: rounding moves the border by less than a thousandth sigma."""
    sigma = 1024 * 2.0
    x = torch.tensor([2.0**24 + 1 + 1e-3], dtype=torch.float64)
    for distance in (0.5, 1.0):
        border = float(x) - distance * sigma

        def above(x, border=border):
            return torch.cat([x.double() - border, border - x.double()], dim=1)

        found = certify(above, x, n=100_000, sigma=sigma)
        assert 0.94 * distance < found.radius / sigma < distance + 1e-3


def test_infinite_inputs_are_refused():
    with pytest.raises(UsageError, match="infinite in float32"):
        certify(scores, torch.tensor([1e39, 0.0], dtype=torch.float64))
