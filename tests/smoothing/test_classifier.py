import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.linear_model import LogisticRegression
from torch import nn

import smoothcert
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.smoothing import classifier, counting
from smoothcert.statistics import bounds

SIGMA = 0.5


def linear(dimensions=4, classes=2, seed=0):
    torch.manual_seed(seed)
    return nn.Linear(dimensions, classes)


def inputs_at(model, radii):
    """Return inputs of a two-class linear model whose exact smoothed radius, the distance to its border, is given."""
    weight = (model.weight[0] - model.weight[1]).detach()
    offset = float((model.bias[0] - model.bias[1]).detach())
    start = torch.randn(len(radii), len(weight), generator=torch.Generator().manual_seed(1))
    distance = (start @ weight + offset) / weight.norm()
    return start + (torch.as_tensor(radii).float() - distance).unsqueeze(1) * weight / weight.norm()


@pytest.fixture(scope="module")
def model():
    return linear()


def test_linear_radius_falls_short_by_less_than_two_percent(model):
    exact = np.linspace(1.0, 2.0, 200) * SIGMA
    smoothed = smoothcert.SmoothedClassifier(model, SIGMA, 2, micro_batch=10_010)
    found = smoothed.certify(inputs_at(model, exact), n=100_000)
    assert (found.prediction == 0).all()
    shortfall = 1 - found.radius.numpy() / exact
    assert 0 < shortfall.mean() < 0.02
    assert (shortfall < -1e-5).mean() <= 0.02, "alpha = 0.001: 4 of 200 would be a wonder"


def test_linear_radius_exceeds_the_exact_one_no_more_often_than_alpha(model):
    """Also with the same votes: a certifier that spends twice alpha, or claims a larger radius, is caught."""
    alpha, repeats, n = 0.05, 4000, 2000
    exact = np.full(repeats, 1.0 * SIGMA)
    smoothed = smoothcert.SmoothedClassifier(model, SIGMA, 2, micro_batch=2100)
    found = smoothed.certify(inputs_at(model, exact), n0=100, n=n, alpha=alpha)
    limit = alpha + 4 * np.sqrt(alpha * (1 - alpha) / repeats)

    def excess(claimed):
        return (claimed > exact * (1 + 1e-5)).mean()

    assert excess(found.radius.numpy()) <= limit
    careless = bounds.certify_counts(found.selection_counts.numpy(), found.counts.numpy(), SIGMA, 2 * alpha)[1]
    assert excess(careless) > limit
    assert excess(2 * found.radius.numpy()) > limit


def test_votes_have_the_exact_distribution(model):
    """The share of votes for the class is Phi(distance / sigma): neither noise nor counting is off."""
    exact = np.linspace(-1.5, 1.5, 50) * SIGMA
    counts = smoothcert.SmoothedClassifier(model, SIGMA, 2, micro_batch=5000).counts(inputs_at(model, exact), 20_000)
    p = stats.norm.cdf(exact / SIGMA)
    z = (counts[:, 0].numpy() - 20_000 * p) / np.sqrt(20_000 * p * (1 - p))
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert (counts.sum(dim=1) == 20_000).all()


def test_no_attack_breaks_a_certificate(trained_lenet, mini):
    """PGD on the smoothed classifier, inside the certified ball: the prediction stays, or is an abstention."""
    smoothed = smoothcert.SmoothedClassifier(trained_lenet, 0.25, 10)
    images = mini.floats(range(0, 80, 10))
    found = smoothed.certify(images, n=1000)
    held = found.prediction >= 0
    assert held.sum() >= 5
    images, radius, classes = images[held], found.radius[held].float(), found.prediction[held]
    delta = torch.zeros_like(images)
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        delta.requires_grad_(True)
        noise = 0.25 * torch.randn(8, *images.shape, generator=generator)
        scores = trained_lenet((images + delta + noise).flatten(0, 1)).view(8, len(images), 10).softmax(-1).mean(0)
        (gradient,) = torch.autograd.grad(nn.functional.nll_loss(scores.log(), classes), delta)
        step = gradient / gradient.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
        delta = delta.detach() + 0.4 * radius.view(-1, 1, 1, 1) * step
        length = delta.flatten(1).norm(dim=1)
        delta = delta * (0.999 * radius / length).clamp(max=1).view(-1, 1, 1, 1)
    assert (delta.flatten(1).norm(dim=1) > 0.9 * radius).all(), "the attack uses the whole ball"
    attacked = smoothcert.SmoothedClassifier(trained_lenet, 0.25, 10, input_range=None)
    answers = attacked.predict(images + delta, n=2000, seed=1)
    assert ((answers == classes) | (answers == bounds.ABSTAIN)).all()


@pytest.mark.parametrize("batch", [None, 1, 300, 5000])
def test_batch_changes_nothing(trained_lenet, mini, batch):
    smoothed = smoothcert.SmoothedClassifier(trained_lenet, 0.5, 10, micro_batch=128)
    images = mini.floats([3, 1, 4])
    counts = smoothed.count_stages(images, (0, 100, 700), index=[3, 1, 4], batch=batch)
    one_by_one = [smoothed.count_stages(images[i : i + 1], (0, 100, 700), index=[j]) for i, j in enumerate([3, 1, 4])]
    assert torch.equal(counts, torch.cat(one_by_one))


def no_memory_on_a_gpu():
    raise torch.OutOfMemoryError("no memory")


def no_memory_on_a_cpu():
    torch.empty(1 << 60)


def no_memory_for_a_kernel():
    raise RuntimeError("Triton Error [CUDA]: out of memory")


def no_memory_for_a_library():
    raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


def no_memory_for_numpy():
    np.empty(1 << 60, dtype=np.int8)


@pytest.mark.parametrize(
    "fail",
    [no_memory_on_a_gpu, no_memory_on_a_cpu, no_memory_for_a_kernel, no_memory_for_a_library, no_memory_for_numpy],
)
def test_out_of_memory_halves_the_batch(trained_lenet, mini, monkeypatch, fail):
    smoothed = smoothcert.SmoothedClassifier(trained_lenet, 0.5, 10, micro_batch=16)
    image, tried = mini.floats([0])[0], []
    expected, make = smoothed.counts(image, 200), classifier.add_noise

    def scarce(noise, inputs, image, *rest, **options):
        tried.append(len(image))
        if len(image) > room:
            fail()
        return make(noise, inputs, image, *rest, **options)

    monkeypatch.setattr(classifier, "add_noise", scarce)
    room = 3
    assert torch.equal(smoothed.counts(image, 200, batch=160), expected)
    assert tried[:3] == [10, 5, 2]
    room = 0
    with pytest.raises(SmoothcertError, match="no memory for 16 noisy inputs at once; choose a smaller `micro_batch`"):
        smoothed.counts(image, 200)


def test_another_error_of_a_model_is_not_taken_for_full_memory(mini):
    def broken(x):
        raise RuntimeError("shapes do not fit")

    with pytest.raises(UsageError, match="cannot score a batch .*shapes do not fit") as caught:
        smoothcert.SmoothedClassifier(broken, 0.5, 10).counts(mini.floats([0])[0], 200)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_error_after_the_first_scores_is_the_models_own(mini):
    calls = []

    def tired(x):
        calls.append(len(x))
        if len(calls) > 3:
            raise RuntimeError("tired")
        return x.flatten(1)[:, :10]

    with pytest.raises(RuntimeError, match="^tired$"):
        smoothcert.SmoothedClassifier(tired, 0.5, 10, micro_batch=16).counts(mini.floats([0])[0], 200)


def test_a_model_may_return_the_same_memory_every_time(trained_lenet, mini):
    place = torch.empty(16, 10)
    image, options = mini.floats([2])[0], {"num_classes": 10, "micro_batch": 16}
    careful = smoothcert.SmoothedClassifier(trained_lenet, 1.0, **options).counts(image, 160, batch=64)
    reusing = smoothcert.SmoothedClassifier(lambda x: place.copy_(trained_lenet(x)), 1.0, **options)
    assert torch.equal(reusing.counts(image, 160, batch=64), careful)


def test_inputs_of_any_size_have_a_micro_batch():
    for numel in (1, 784, 3072, 150_528, 3 * 640 * 640, 10**9):
        for device in ("cpu", "cuda"):
            size = counting.default_micro_batch(numel, torch.device(device))
            assert size >= 4
            assert size == 4 or size * numel <= 2**27
    assert [counting.default_micro_batch(numel, torch.device("cpu")) for numel in (784, 3072, 150_528)] == [256, 256, 4]
    for numel in (784, 3072, 150_528):  # little of the usual 100,100 samples is padding
        size = counting.default_micro_batch(numel, torch.device("cuda"))
        assert -(-100_100 // size) * size <= 1.011 * 100_100


def test_stages_are_disjoint_parts_of_one_sequence(trained_lenet, mini):
    smoothed = smoothcert.SmoothedClassifier(trained_lenet, 0.5, 10, micro_batch=64)
    images = mini.floats([7])
    whole = smoothed.count_stages(images, (0, 500))[:, 0]
    parts = smoothed.count_stages(images, (0, 100, 333, 500))
    assert torch.equal(parts.sum(dim=1), whole)
    assert torch.equal(smoothed.count_stages(images, (100, 333))[0, 0], parts[0, 1])


def test_one_input_or_a_batch(trained_lenet, mini):
    smoothed = smoothcert.SmoothedClassifier(trained_lenet, 0.25)
    image = mini.floats([0])[0]
    one, many = smoothed.certify(image, n=200), smoothed.certify(image.unsqueeze(0), n=200)
    assert isinstance(one.prediction, int)
    assert isinstance(one.radius, float)
    assert one.counts.shape == (10,)
    assert many.counts.shape == (1, 10)
    assert (one.prediction, one.radius, one.p_lower) == (many.prediction[0], many.radius[0], many.p_lower[0])
    assert isinstance(smoothed.predict(image, n=200), int)
    assert smoothed(image.unsqueeze(0), n=200).sum() == pytest.approx(1)
    assert smoothed.num_classes == 10


def test_an_input_shape_settles_what_one_input_is():
    gray = smoothcert.SmoothedClassifier(lambda x: x.flatten(1)[:, :3], SIGMA, 3, input_shape=(4, 4))
    assert isinstance(gray.predict(torch.rand(4, 4), n=20), int)
    assert gray.predict(torch.rand(5, 4, 4), n=20).shape == (5,)


def test_any_callable_will_do():
    generator = np.random.default_rng(0)
    features = np.concatenate([generator.normal(-1, 0.3, (50, 3)), generator.normal(1, 0.3, (50, 3))])
    regression = LogisticRegression().fit(features, np.repeat([0, 1], 50))
    smoothed = smoothcert.SmoothedClassifier(regression.predict_proba, SIGMA, num_classes=2)
    assert smoothed.certify(torch.tensor([1.0, 1.0, 1.0]), n=500).prediction == 1


def test_a_model_for_another_range_gets_an_adapter(trained_lenet, mini):
    """The same network behind [-1, 1] and standardized inputs gives the same certificates for the same sigma."""
    images = mini.floats([0, 1])
    expected = smoothcert.SmoothedClassifier(trained_lenet, 0.25).certify(images, n=300)
    signed = smoothcert.adapt_inputs(lambda x: trained_lenet((x + 1) / 2), value_range=(-1, 1))
    standard = smoothcert.adapt_inputs(lambda x: trained_lenet(x * 0.3 + 0.1), mean=[0.1], std=[0.3])
    for model in (signed, standard):
        found = smoothcert.SmoothedClassifier(model, 0.25, micro_batch=256).certify(images, n=300)
        assert (found.counts - expected.counts).abs().max() <= 2, "up to the rounding of the change of units"


def test_voting_is_in_eval_mode_and_leaves_every_mode_as_it_was():
    model = nn.Sequential(nn.Dropout(0.9), nn.Linear(4, 2), nn.BatchNorm1d(2))
    model.train()
    model[2].eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    smoothed = smoothcert.SmoothedClassifier(model, SIGMA)
    first, second = smoothed.counts(torch.ones(4), 500), smoothed.counts(torch.ones(4), 500)
    assert torch.equal(first, second)
    assert [module.training for module in model] == [True, True, False]
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_seeds_and_indices_name_the_noise(model):
    smoothed = smoothcert.SmoothedClassifier(model, 3.0, 2)
    x = torch.zeros(4)
    assert torch.equal(smoothed.counts(x, 5000, seed=4), smoothed.counts(x, 5000, seed=4))
    others = [
        smoothed.counts(x, 5000, seed=5),
        smoothed.counts(x, 5000, seed=4, index=9),
        smoothed.counts(x, 5000, seed=None),
    ]
    assert all(not torch.equal(other, smoothed.counts(x, 5000, seed=4)) for other in others)


def test_bf16_is_a_function_of_its_own_but_close(trained_lenet, mini):
    images = mini.floats([0, 5])
    counts = [
        smoothcert.SmoothedClassifier(trained_lenet, 0.25, precision=p).counts(images, 256) for p in ("fp32", "bf16")
    ]
    assert (counts[0] - counts[1]).abs().max() < 30
    scores = [smoothcert.SmoothedClassifier(trained_lenet, 0.25, precision=p).scores(images) for p in ("fp32", "bf16")]
    assert 0 < (scores[0] - scores[1]).abs().max() < 0.1 * scores[0].abs().max()


@pytest.mark.parametrize("form", ["plain", "folded"])
def test_fp32_stays_fp32_within_an_autocast_of_the_caller(trained_lenet, mini, form):
    smoothed = smoothcert.SmoothedClassifier(trained_lenet, 0.5, 10, form=form)
    images = mini.floats([0, 5])
    expected = smoothed.scores(images)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(smoothed.scores(images), expected)


@pytest.mark.parametrize("kind", ["in training mode", "without statistics", "with dropout", "quantized", "in a list"])
def test_votes_that_depend_on_each_other_are_refused(kind):
    """The sums of a batch are compared with their mean: half of the votes go to each class, whatever the input is."""
    norm = nn.BatchNorm1d(3, track_running_stats=kind != "without statistics")
    network = nn.Sequential(nn.Linear(5, 3), norm, nn.Dropout(0.5 if kind == "with dropout" else 0.0))
    model = network if kind == "without statistics" else lambda x: network(x)
    if kind == "quantized":
        with pytest.warns(DeprecationWarning, match="quantization"):
            model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(5, 3)), {nn.Linear})
    elif kind == "in a list":
        model = nn.Module()
        model.hidden, model.forward = [network], lambda x: model.hidden[0](x)
    with pytest.raises(UsageError, match="not independent and prove nothing"):
        smoothcert.SmoothedClassifier(model, 0.5, 3).certify(torch.zeros(5), n=100)
    if kind != "without statistics":
        network.eval()
        smoothcert.SmoothedClassifier(model, 0.5, 3, micro_batch=1).certify(torch.zeros(5), n=10)


def test_random_networks_may_vote():
    dropout = nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5))
    generator = np.random.default_rng(0)
    for model in (lambda x: dropout(x), lambda x: generator.random((len(x), 3))):
        assert smoothcert.SmoothedClassifier(model, 0.5, 3).counts(torch.zeros(5), 300).sum() == 300


@pytest.mark.parametrize("micro_batch", [1, 8])
def test_a_model_that_writes_into_its_inputs_spoils_none(micro_batch):
    def centered(x):
        x.sub_(0.5)
        return torch.stack([x.sum(dim=(1, 2, 3)), -x.sum(dim=(1, 2, 3))], dim=1)

    image = torch.full((1, 2, 2), 0.6)
    smoothed = smoothcert.SmoothedClassifier(centered, 0.25, micro_batch=micro_batch)
    votes = smoothed.counts(image, 100)
    assert torch.equal(image, torch.full((1, 2, 2), 0.6))
    other = smoothcert.SmoothedClassifier(lambda x: centered(x.clone()), 0.25, 2, micro_batch=micro_batch)
    assert torch.equal(votes, other.counts(image, 100))
    noisy = torch.rand(8, 1, 2, 2)
    assert torch.equal(smoothed.scores(noisy), smoothed.scores(noisy))
