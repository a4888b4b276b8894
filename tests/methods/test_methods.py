"""Each method against NumPy and in its degenerate cases; properties that all methods share."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from smoothcert.errors import UsageError
from smoothcert.methods import METHODS, StepOutput, create_method
from smoothcert.training.step_draws import StepDraws

RNG = np.random.default_rng(7)
CLASSES, DIMENSIONS, IMAGES = 3, 5, 4
WEIGHT = RNG.normal(size=(CLASSES, DIMENSIONS))
X = RNG.uniform(0.2, 0.8, size=(IMAGES, DIMENSIONS))
Y = np.array([0, 1, 2, 1])
SOFT = RNG.dirichlet(np.ones(CLASSES), size=IMAGES)
NOISE = RNG.normal(size=(2, IMAGES, DIMENSIONS))
UNIFORM = RNG.uniform(size=(IMAGES, 2))
SIGMA = 0.3
LATE = torch.tensor(1000.0, dtype=torch.float64)


class Fixed:
    """Returns the draws defined above."""

    def noise(self, x, count):
        return torch.from_numpy(NOISE[:count]).view(-1, *x.shape)

    def uniform(self, x, count):
        return torch.from_numpy(UNIFORM[:, :count])

    def direction(self, x):
        return torch.zeros_like(x)

    def images(self, x):
        return len(x)


def linear():
    model = nn.Linear(DIMENSIONS, CLASSES, bias=False).double()
    model.weight.data = torch.from_numpy(WEIGHT).clone()
    return model


def step(name, options=None, epoch=LATE, model=None, soft=SOFT, x=X):
    method = create_method(name, SIGMA, options)
    tensors = (torch.from_numpy(x), torch.from_numpy(Y))
    return method.step(model or linear(), *tensors, draws=Fixed(), epoch=epoch, soft=torch.from_numpy(soft))


def step_on_images(name, options, epoch=LATE):
    """Return the output for X as images of 1x5 pixels, which attacks keep in [0, 1], with flat images as its parts."""
    model = nn.Sequential(nn.Flatten(), linear())
    output = step(name, options, epoch, model, x=X.reshape(IMAGES, 1, 1, DIMENSIONS))
    parts = {key: value.flatten(1) if value.dim() > 1 else value for key, value in output.parts.items()}
    return StepOutput(output.loss, parts)


def softmax(scores):
    exponents = np.exp(scores - scores.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


def predictions(x, noises=2):
    return softmax((x + SIGMA * NOISE[:noises]) @ WEIGHT.T)


def nll(p):
    return -np.log(p[..., np.arange(IMAGES), Y])


def kl(target, p):
    return (target * (np.log(target) - np.log(p))).sum(-1)


def smoothed_gradient(x):
    """The gradient of -log of the label's mean probability over two noise samples, for a linear network."""
    p = predictions(x)
    label = p[:, np.arange(IMAGES), Y]
    pull = WEIGHT[Y] - p @ WEIGHT
    return -(label[..., None] * pull).mean(0) / label.mean(0)[:, None]


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def test_gaussian_by_hand():
    assert step("gaussian").loss.item() == pytest.approx(nll(predictions(X, 1)).mean())


def test_stability_by_hand():
    clean, noisy = softmax(X @ WEIGHT.T), predictions(X, 1)[0]
    expected = nll(clean).mean() + 1.5 * -(clean * np.log(noisy)).sum(-1).mean()
    assert step("stability", {"weight": 1.5}).loss.item() == pytest.approx(expected)


def test_consistency_by_hand():
    p = predictions(X)
    mean = p.mean(0)
    entropy = -(mean * np.log(mean)).sum(-1).mean()
    expected = nll(p).mean() + 4 * kl(mean, p).mean() + 0.25 * entropy
    assert step("consistency", {"weight": 4.0, "entropy_weight": 0.25}).loss.item() == pytest.approx(expected)


def test_macer_by_hand():
    p, sharp = predictions(X), softmax(2.0 * (X + SIGMA * NOISE) @ WEIGHT.T).mean(0)
    top = np.sort(sharp, axis=-1)
    radius = stats.norm.ppf(top[:, -1]) - stats.norm.ppf(top[:, -2])
    right = sharp.argmax(-1) == Y
    assert 0 < right.sum() < IMAGES, "both kinds of image are there"
    hinge = SIGMA / 2 * (1.0 - radius)[right & (np.abs(radius) <= 1.0)].sum()
    expected = (-np.log(p.mean(0)[np.arange(IMAGES), Y] + 1e-10).sum() + 3 * hinge) / IMAGES
    options = {"num_noises": 2, "weight": 3.0, "margin": 1.0, "temperature": 2.0, "defer_epochs": 5}
    before, then = (torch.tensor(epoch, dtype=torch.float64) for epoch in (4.0, 5.0))
    assert step("macer", options, epoch=then).loss.item() == pytest.approx(expected)
    early = step("macer", options, epoch=before).loss.item()
    assert early == pytest.approx(-np.log(p.mean(0)[np.arange(IMAGES), Y] + 1e-10).mean())


def test_smoothadv_by_hand():
    """One step: twice the radius along the normalized gradient, clamped to [0, 1], then projected to the ball."""
    moved = np.clip(X + 2 * 0.1 * unit(smoothed_gradient(X)), 0, 1)
    delta = moved - X
    delta *= np.minimum(1, 0.1 / np.linalg.norm(delta, axis=-1, keepdims=True))
    output = step_on_images("smoothadv", {"num_noises": 2, "attack_radius": 0.1, "attack_steps": 1})
    assert output.parts["adversarial"].numpy() == pytest.approx(X + delta, abs=1e-6)
    assert output.loss.item() == pytest.approx(nll(predictions(X + delta)).mean(), abs=1e-6)


def test_smoothadv_goes_along_noise_where_the_gradient_vanishes():
    class Along(Fixed):
        def direction(self, x):
            return torch.ones_like(x)

    flat = nn.Linear(DIMENSIONS, CLASSES, bias=False).double()
    nn.init.zeros_(flat.weight)
    method = create_method("smoothadv", SIGMA, {"num_noises": 2, "attack_radius": 0.1, "attack_steps": 1})
    output = method.step(flat, torch.from_numpy(X), torch.from_numpy(Y), draws=Along(), epoch=LATE)
    along = np.full_like(X, 0.1 / math.sqrt(DIMENSIONS))
    assert output.parts["adversarial"].numpy() == pytest.approx(X + along, abs=1e-6)


def test_smoothadv_consistency_by_hand():
    """One step in the other order: projected to the ball first, then clamped."""
    delta = 2 * 0.9 * unit(smoothed_gradient(X))
    delta *= 0.9 / np.linalg.norm(delta, axis=-1, keepdims=True)
    moved = np.clip(X + delta, 0, 1)
    assert (np.linalg.norm(moved - X, axis=-1) < 0.9 - 1e-3).any(), "the clamp matters here"
    options = {"num_noises": 2, "attack_radius": 0.9, "attack_steps": 1, "weight": 2.0}
    output = step_on_images("smoothadv-consistency", options)
    assert output.parts["adversarial"].numpy() == pytest.approx(moved, abs=1e-6)
    p = predictions(moved)
    mean = p.mean(0)
    expected = nll(p).mean() + 2 * kl(mean, p).mean() - 0.5 * (mean * np.log(mean)).sum(-1).mean()
    assert output.loss.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_the_epoch_may_be_a_plain_number(name):
    options = {"late_epoch": 2} if name == "catrs" else {}
    by_number, by_tensor = (step(name, options, epoch).loss for epoch in (3, torch.tensor(3.0, dtype=torch.float64)))
    torch.testing.assert_close(by_number, by_tensor, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_vectors_may_have_any_range(name):
    """The loss is the same if the inputs and the network's origin move by 10: attacks clamp images only."""
    moved = nn.Linear(DIMENSIONS, CLASSES).double()
    moved.weight.data = torch.from_numpy(WEIGHT).clone()
    moved.bias.data = torch.from_numpy(-10 * WEIGHT.sum(axis=1))
    here, there = step(name), step(name, model=moved, x=X + 10)
    assert there.loss.item() == pytest.approx(here.loss.item(), abs=1e-6)
    if "adversarial" in here.parts:
        assert there.parts["adversarial"].numpy() == pytest.approx(here.parts["adversarial"].numpy() + 10, abs=1e-6)


@pytest.mark.parametrize("name", ["smoothadv", "smoothadv-consistency"])
@pytest.mark.parametrize(("epoch", "share"), [(0, 0.1), (3, 0.4), (9, 1.0), (10, 1.0)])
def test_the_radius_of_an_attack_grows_with_the_epochs(name, epoch, share):
    options = {"num_noises": 2, "attack_steps": 1}
    growing = {**options, "attack_radius": 0.2, "warmup": 10}
    found = step(name, growing, epoch=torch.tensor(float(epoch), dtype=torch.float64))
    full = step(name, {**options, "attack_radius": 0.2 * share, "warmup": 1})
    moved = found.parts["adversarial"].numpy()
    assert moved == pytest.approx(full.parts["adversarial"].numpy(), abs=1e-9)
    assert np.linalg.norm(moved - X, axis=-1).max() == pytest.approx(0.2 * share, abs=1e-6)


@pytest.mark.parametrize("one_step", [False, True])
def test_smoothmix_by_hand(one_step):
    epoch, warm = torch.tensor(3.0, dtype=torch.float64), 0.4
    far = np.clip(X + 0.2 * unit(smoothed_gradient(X)), 0, 1)
    near = (
        X + np.minimum(1, warm * 0.2 / np.linalg.norm(far - X, axis=-1, keepdims=True)) * (far - X) if one_step else X
    )
    options = {"num_noises": 2, "step_size": 0.2, "attack_steps": 1, "weight": 5.0, "one_step_adversary": one_step}
    output = step_on_images("smoothmix", options, epoch)
    assert output.parts["adversarial"].numpy() == pytest.approx(far, abs=1e-6)
    assert output.parts["clean_side"].numpy() == pytest.approx(near, abs=1e-6)
    p = predictions(near)
    mean, share = p.mean(0), UNIFORM[:, :1] / 2
    target = (1 - share) * mean + share / CLASSES
    mixed = predictions((1 - share) * near + share * far)
    mixing = (kl(target, mixed) * (mean.argmax(-1) == Y)).mean()
    assert output.loss.item() == pytest.approx(nll(p).mean() + 5 * warm * mixing, abs=1e-6)


def catrs_by_hand(radius):
    """K, the worst noise after one attack step with restored moments, and both losses of Algorithm 1."""
    noise = SIGMA * NOISE
    p = predictions(X)
    confidence = (p.argmax(-1) == Y).mean(0)
    kept = np.maximum(1, (confidence[:, None] > UNIFORM).sum(-1))
    losses = np.sort(nll(p), axis=0)
    low = np.array([losses[:k, i].sum() for i, k in enumerate(kept)]) / 2
    uphill = (p - SOFT) @ WEIGHT
    moved = noise + radius * unit(uphill)
    rms = lambda d: np.sqrt((d**2).mean(-1, keepdims=True))  # noqa: E731
    mean = lambda d: d.mean(-1, keepdims=True)  # noqa: E731
    worst = mean(noise) + rms(noise) * (moved - mean(moved)) / rms(moved)
    high = kl(SOFT, softmax((X + worst) @ WEIGHT.T)).max(0)
    return kept, worst, low, high


def test_catrs_by_hand():
    kept, worst, low, high = catrs_by_hand(0.2)
    assert set(kept) == {1, 2}, "both kinds of image are there"
    output = step("catrs", {"num_noises": 2, "attack_radius": 0.2, "attack_steps": 1, "weight": 1.5})
    assert output.parts["kept"].tolist() == kept.tolist()
    assert output.parts["worst_noise"].numpy() == pytest.approx(worst, abs=1e-6)
    assert output.loss.item() == pytest.approx((low + 1.5 * (kept == 2) * high).mean(), abs=1e-6)


CATRS = {"num_noises": 2, "attack_radius": 0.2, "attack_steps": 1, "weight": 1.5}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"high": "none"}, lambda kept, low, high: low),
        ({"low": "none", "mask": False}, lambda kept, low, high: 1.5 * high),
        ({"low": "mean", "mask": False}, lambda kept, low, high: nll(predictions(X)).mean(0) + 1.5 * high),
        ({"mask": False}, lambda kept, low, high: low + 1.5 * high),
    ],
    ids=["low only", "high only", "base + high", "no mask"],
)
def test_catrs_loss_ablations_by_hand(options, expected):
    kept, _, low, high = catrs_by_hand(0.2)
    assert step("catrs", {**CATRS, **options}).loss.item() == pytest.approx(expected(kept, low, high).mean(), abs=1e-6)


def test_catrs_mean_over_noises():
    kept, worst, low, _ = catrs_by_hand(0.2)
    mean = kl(SOFT, softmax((X + worst) @ WEIGHT.T)).mean(0)
    found = step("catrs", {**CATRS, "high": "mean"}).loss.item()
    assert found == pytest.approx((low + 1.5 * (kept == 2) * mean).mean(), abs=1e-6)


def test_catrs_targets():
    """A hard label turns the divergence into cross-entropy; the mean prediction needs no soft labels."""
    hard = step("catrs", {**CATRS, "target": "label", "mask": False})
    p = softmax((X + hard.parts["worst_noise"].numpy()) @ WEIGHT.T)
    assert hard.parts["high"].item() == pytest.approx(nll(p).max(0).mean())
    one_hot = step("catrs", {**CATRS, "mask": False}, soft=np.eye(CLASSES)[Y])
    assert one_hot.loss.item() == pytest.approx(hard.loss.item())
    mean = step("catrs", {**CATRS, "target": "mean-prediction", "mask": False})
    p = softmax((X + mean.parts["worst_noise"].numpy()) @ WEIGHT.T)
    assert mean.parts["high"].item() == pytest.approx(kl(predictions(X).mean(0), p).max(0).mean())


def test_catrs_confidence_from_the_soft_label():
    kept = np.maximum(1, (SOFT[np.arange(IMAGES), Y][:, None] > UNIFORM).sum(-1))
    assert step("catrs", {**CATRS, "confidence": "soft-label"}).parts["kept"].tolist() == kept.tolist()


@pytest.mark.parametrize("moments", ["rms-each-step", "std-at-end", "free"])
def test_catrs_moments_of_the_worst_noise(moments):
    def attacked(moments):
        return step("catrs", {**CATRS, "attack_steps": 3, "moments": moments}).parts["worst_noise"].numpy()

    worst, noise = attacked(moments), SIGMA * NOISE
    if moments == "free":
        assert np.linalg.norm(worst - noise, axis=-1).max() <= 0.2
        assert not np.allclose(worst.mean(-1), noise.mean(-1))
    else:
        assert worst.mean(-1) == pytest.approx(noise.mean(-1))
    if moments == "std-at-end":
        assert worst.std(-1) == pytest.approx(noise.std(-1))
        standard = [stats.zscore(found, axis=-1) for found in (worst, attacked("free"))]
        assert standard[0] == pytest.approx(standard[1]), "the attack itself is free"


def test_catrs_masked_attack_is_the_same_loss():
    right, wrong = np.eye(CLASSES)[Y], np.eye(CLASSES)[(Y + 1) % CLASSES]
    some = np.where(np.arange(IMAGES)[:, None] % 2, right, wrong)
    for soft, sure in ((some, 0.5), (right, 1.0), (wrong, 0.0)):
        losses, gradients = [], []
        for attack in ("all", "masked"):
            model = linear()
            output = step(
                "catrs", {"num_noises": 2, "attack": attack, "confidence": "soft-label"}, model=model, soft=soft
            )
            output.loss.backward()
            losses.append(output.loss.detach())
            gradients.append(model.weight.grad)
        torch.testing.assert_close(*losses)
        torch.testing.assert_close(*gradients)
        assert float(output.parts["sure"]) == sure


def test_catrs_late_radius():
    options = {**CATRS, "moments": "free", "late_radius": 0.7, "late_epoch": 80}
    for epoch, radius in ((79.0, 0.2), (80.0, 0.7)):
        found = step("catrs", options, torch.tensor(epoch, dtype=torch.float64)).parts["worst_noise"].numpy()
        assert np.linalg.norm(found - SIGMA * NOISE, axis=-1) == pytest.approx(np.full((2, IMAGES), radius), abs=1e-5)


def first_failure_by_hand(steps, length):
    """The noise on the ascent path that the linear network misclassifies first, or the last one."""
    found = np.empty_like(NOISE)
    failed = np.zeros(NOISE.shape[:2], dtype=bool)
    for index in np.ndindex(failed.shape):
        image, delta = index[1], SIGMA * NOISE[index]
        size = np.linalg.norm(delta)
        for _ in range(steps):
            p = softmax(WEIGHT @ (X[image] + delta))
            if p.argmax() != Y[image]:
                failed[index] = True
                break
            delta = delta + length * unit((p - np.eye(CLASSES)[Y[image]]) @ WEIGHT)
            delta = size * unit(delta)
        found[index] = delta
    return found, failed


@pytest.mark.parametrize(("steps", "length"), [(1, 0.3), (2, 0.2), (3, 0.1)])
def test_first_failure_by_hand(steps, length):
    worst, failed = first_failure_by_hand(steps, length)
    assert 0 < failed.sum() < failed.size, "some noise fails, some does not"
    output = step("first-failure", {"num_noises": 2, "attack_steps": steps, "step_size": length})
    assert output.parts["worst_noise"].numpy() == pytest.approx(worst, abs=1e-6)
    assert output.parts["failed"].item() == pytest.approx(failed.mean())
    assert output.loss.item() == pytest.approx(nll(softmax((X + worst) @ WEIGHT.T)).mean(), abs=1e-6)


def test_first_failure_before_its_attack_is_gaussian_training():
    method = create_method("first-failure", SIGMA, {"num_noises": 2, "attack_epoch": 7})
    assert method.at_epoch(7) is method
    assert method.at_epoch(6) == create_method("first-failure", SIGMA, {**vars_of(method), "attack_steps": 0})
    free = step("first-failure", {"num_noises": 2, "attack_steps": 0})
    assert free.loss.item() == pytest.approx(nll(predictions(X)).mean())
    assert free.loss.item() == step("gaussian", {"num_noises": 2}).loss.item()


def vars_of(method):
    return {key: value for key, value in vars(method).items() if key != "sigma"}


def test_degenerate_cases_agree():
    sure = SOFT.copy()
    sure[np.arange(IMAGES), Y] = 1.0
    gaussian = nll(predictions(X)).mean()
    whole = step("catrs", {**CATRS, "weight": 0.0, "confidence": "soft-label"}, soft=sure)
    assert whole.loss.item() == pytest.approx(gaussian), "lambda = 0 and p = 1: Gaussian training with M noises"
    single = step("catrs", {**CATRS, "num_noises": 1, "weight": 0.0})
    assert single.loss.item() == pytest.approx(step("gaussian").loss.item())
    assert single.parts["sure"].item() == 1, "M = 1 forces the mask"
    plain = step("consistency", {"weight": 0.0, "entropy_weight": 0.0})
    assert plain.loss.item() == pytest.approx(gaussian)
    tiny = step("smoothadv", {"num_noises": 2, "attack_radius": 1e-12})
    assert tiny.loss.item() == pytest.approx(gaussian)
    assert step("smoothmix", {"num_noises": 2, "weight": 0.0}).loss.item() == pytest.approx(gaussian)
    assert step("stability", {"weight": 0.0}).loss.item() == pytest.approx(nll(softmax(X @ WEIGHT.T)).mean())
    unregularized = step("macer", {"num_noises": 2, "weight": 0.0}).loss.item()
    assert unregularized == pytest.approx(-np.log(predictions(X).mean(0)[np.arange(IMAGES), Y]).mean())


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).relu().mean(dim=(2, 3)))


@pytest.mark.parametrize("name", METHODS)
def test_what_every_method_must_have(name):
    torch.manual_seed(0)
    model, x, y = Network().train(), torch.rand(6, 1, 8, 8), torch.arange(6) % CLASSES
    soft = torch.from_numpy(RNG.dirichlet(np.ones(CLASSES), size=6)).float()
    method = create_method(name, 0.25, {"num_noises": 2} if "num_noises" in METHODS[name].__dataclass_fields__ else {})
    before = {key: value.clone() for key, value in model.state_dict().items()}

    def run(step):
        model.load_state_dict(before)
        model.zero_grad()
        return method.step(model, x, y, draws=StepDraws(3, step), epoch=torch.tensor(0.0), soft=soft)

    output = run(0)
    assert torch.isfinite(output.loss)
    assert all(parameter.grad is None for parameter in model.parameters()), "an attack leaves no gradient behind"
    assert all(not part.requires_grad or key in ("adversarial", "clean_side") for key, part in output.parts.items())
    output.loss.backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters()), "gradients reach every parameter"
    assert int(model.norm.num_batches_tracked) == METHODS[name].training_passes
    assert all(module.training for module in model.modules())
    assert run(0).loss == output.loss, "the same draws, the same loss"
    assert run(1).loss != output.loss
    assert method == eval(repr(method), {type(method).__name__: type(method)}), "a method is its hyperparameters"


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_title(name):
    assert METHODS[name].title


def test_draws_are_named_by_seed_step_and_position():
    x = torch.zeros(4, 3)
    draws = StepDraws(1, 5)
    first, second = draws.noise(x, 2), draws.noise(x, 1)
    assert first.shape == (2, 4, 3)
    assert torch.unique(torch.cat((first, second))).numel() == 36, "no two draws are the same"
    assert torch.equal(StepDraws(1, torch.tensor(5)).noise(x[:2], 2), first[:, :2]), (
        "a smaller batch has the same draws"
    )
    assert not torch.equal(StepDraws(1, 6).noise(x, 2), first)
    assert draws.uniform(x, 7).shape == (4, 7)
    assert not torch.equal(draws.uniform(x, 7), draws.uniform(x, 7))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("catrss", {}, "did you mean 'catrs'"),
        (
            "catrs",
            {"num_noise": 4},
            "no option `num_noise`; did you mean `num_noises`. Its options: `attack`, ",
        ),
        ("gaussian", {"weight": 1.0}, "Its options: `num_noises`"),
        ("catrs", {"num_noises": 0}, "`num_noises` to be at least 1, but got 0"),
        ("catrs", {"attack_radius": -1.0}, "`attack_radius` to be > 0, but got -1.0"),
        ("catrs", {"target": "hard"}, "`target` to be one of soft, mean-prediction, label"),
        ("catrs", {"low": "none", "high": "none"}, "but got 'none' for both"),
        ("macer", {"weight": -1.0}, "`weight` to be >= 0"),
        ("macer", {"weight": "2"}, "`weight` to be of type float, but got '2'"),
        ("macer", {"num_noises": 2.5}, "`num_noises` to be of type int, but got 2.5"),
        ("consistency", {"weight": None}, "`weight` to be of type float, but got None"),
    ],
)
def test_bad_hyperparameters(name, options, message):
    with pytest.raises(UsageError, match=message):
        create_method(name, 0.25, options)


def test_missing_soft_labels():
    method = create_method("catrs", SIGMA)
    assert method.uses_soft_labels
    assert not create_method("catrs", SIGMA, {"target": "label"}).uses_soft_labels
    assert create_method("catrs", SIGMA, {"target": "label", "confidence": "soft-label"}).uses_soft_labels
    assert not create_method("catrs", SIGMA, {"high": "none"}).uses_soft_labels
    with pytest.raises(UsageError, match="Expected `soft` to be soft labels"):
        method.step(linear(), torch.from_numpy(X), torch.from_numpy(Y), draws=_Endless(), epoch=LATE)


class _Endless(Fixed):
    def noise(self, x, count):
        return torch.zeros(count, *x.shape, dtype=x.dtype)

    def uniform(self, x, count):
        return torch.zeros(len(x), count)
