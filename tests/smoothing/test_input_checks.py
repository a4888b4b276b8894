"""Bad input to the library: one clear sentence each."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import smoothcert
from smoothcert.errors import SmoothcertError, UsageError

IMAGE = torch.linspace(0, 1, 16).reshape(1, 4, 4)


def scores(x):
    return x.flatten(1)[:, :3]


def smooth(model=scores, sigma=0.5, num_classes=3, **options):
    return smoothcert.SmoothedClassifier(model, sigma, num_classes, **options)


class Output:
    """Stands for the outputs of other libraries, which hold scores beside other things."""


def linear(dtype=torch.float32):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3, dtype=dtype))


CASES = [
    (lambda: smooth(sigma=0.0), "`sigma` to be > 0 and finite, but got 0"),
    (lambda: smooth(sigma=float("inf")), "`sigma`"),
    (lambda: smooth(sigma="0.5"), "`sigma` to be > 0 and finite, but got '0.5'"),
    (lambda: smooth(sigma=[0.5]), "`sigma` to be > 0"),
    (lambda: smooth(num_classes=0), "`num_classes` to be at least 1"),
    (lambda: smooth(num_classes="3"), "`num_classes` to be a whole number"),
    (lambda: smooth(input_range="0-1"), "`input_range` to be"),
    (lambda: smooth(input_range=(1, 0)), "with low < high, or None"),
    (lambda: smooth(input_shape=16), "`input_shape` to be a shape"),
    (lambda: smooth(noise=None), "the name of a noise, but got None"),
    (lambda: smooth(form=None), "the name of a form, but got None"),
    (lambda: smooth(form="folded"), "ensembles of them can be folded, not a function"),
    (lambda: smooth(micro_batch=True), "`micro_batch` to be a whole number, but got True"),
    (lambda: smooth(model="resnet"), "`model` to be callable"),
    (lambda: smooth(precision="int8"), "Unknown precision 'int8'"),
    (lambda: smooth().certify(IMAGE, n=5), "n >= 10"),
    (lambda: smooth().certify(IMAGE, n=5, alpha=0.5e-9), "n >= 31"),
    (lambda: smooth().certify(IMAGE, alpha=1.5), "`alpha`"),
    (lambda: smooth().certify(IMAGE, alpha=None), "`alpha`"),
    (lambda: smooth().predict(IMAGE, alpha=0.0), "`alpha`"),
    (lambda: smooth().predict(IMAGE, n=0), "`n`"),
    (lambda: smooth().predict(IMAGE, n=10), "every prediction abstains at alpha = 0.001; use n >= 11"),
    (lambda: smooth().certify(IMAGE + 1), r"inputs in \[0.0, 1.0\], the range"),
    (lambda: smooth().certify(IMAGE - 0.001), "adapt_inputs"),
    (lambda: smooth(input_range=(0, 255)).certify(IMAGE * 300), r"\[0, 255\]"),
    (lambda: smooth().certify((IMAGE * 255).byte()), "divide them by 255"),
    (lambda: smooth().certify(torch.ones(1, 4, 4, dtype=torch.int64)), "floating-point"),
    (lambda: smooth().certify(IMAGE * float("nan")), "contain NaN"),
    (lambda: smooth().certify(torch.rand(0, 1, 4, 4)), r"non-empty input, but got shape \[0, 1, 4, 4\]"),
    (lambda: smooth().certify(torch.rand(1, 1, 1, 4, 4)), "a batch of them"),
    (lambda: smooth(input_shape=(1, 5, 5)).certify(IMAGE), r"shape \[1, 5, 5\], but got \[1, 4, 4\]"),
    (lambda: smooth(num_classes=7).certify(IMAGE, n=20), r"scores of shape \[256, 7\]"),
    (lambda: smooth(model=lambda x: x.flatten(1).argmax(1)).certify(IMAGE, n=20), "scores of shape"),
    (lambda: smooth(model=lambda x: {"logits": x}).certify(IMAGE, n=20), "scores from the model, but got a dict"),
    (lambda: smooth(model=lambda x: None).certify(IMAGE, n=20), "but got a NoneType"),
    (
        lambda: smooth(model=lambda x: scores(x) > 0).certify(IMAGE, n=20),
        "numeric scores from the model, but got torch.bool",
    ),
    (lambda: smooth(input_shape=(1, 4, 4)).certify(torch.tensor(0.5)), r"but got \[\]"),
    (lambda: smooth().certify(IMAGE, n=1e5), "`n` to be a whole number, but got 100000.0"),
    (lambda: smooth().certify(IMAGE, seed=-1), "`seed`"),
    (lambda: smooth().certify(IMAGE, seed=1.5), "`seed` to be a whole number"),
    (lambda: smooth().certify(IMAGE, index=1.5), "`index` to contain one integer"),
    (lambda: smooth().certify(IMAGE, index="a"), "`index` to contain one integer"),
    (lambda: smooth().certify(IMAGE, index=True), "`index` to contain one integer per input, but got torch.bool"),
    (lambda: smooth().certify(IMAGE, index="a" * 1000), r"`index` to contain .*, but got 'a{12}\.\.\.a{13}'"),
    (lambda: smooth().certify(IMAGE, index=10**5000), "`index` to contain one integer per input, but got an int"),
    (lambda: smooth(input_range=np.zeros(3)), "`input_range` to be"),
    (lambda: smooth().certify("cat.png"), "a tensor or an array, but got a str"),
    (lambda: smooth(model=linear(torch.float16)).certify(IMAGE, n=20), r"are torch.float16, .*model.float\(\)"),
    (lambda: smooth(model=linear(torch.float64)).certify(IMAGE, n=20), r"are torch.float64, .*model.float\(\)"),
    (
        lambda: smooth(smoothcert.create_model("lenet", 3).bfloat16(), form="folded").certify(
            torch.rand(1, 28, 28), n=20
        ),
        r"are torch.bfloat16, .*model.float\(\)",
    ),
    (lambda: smooth(model=linear().to("meta")).certify(IMAGE, n=20), "device `meta`"),
    (lambda: smooth(model=lambda x: (scores(x), None)).certify(IMAGE, n=20), "a tuple; wrap the model in a module"),
    (
        lambda: smooth(lambda x: x.flatten(1)[:, :1], num_classes=None).predict(IMAGE),
        "one score per class .*a single score",
    ),
    (
        lambda: smooth(lambda x: x.flatten(1)[:, :1], num_classes=2).predict(IMAGE),
        "one score per class .*a single score",
    ),
    (lambda: smooth(model=lambda x: iter(())).certify(IMAGE, n=20), "but got a tuple_iterator"),
    (lambda: smooth(model=lambda x: Output()).certify(IMAGE, n=20), "but got an Output; wrap the model"),
    (
        lambda: smooth(torch.nn.Conv2d(3, 3, 5)).certify(np.zeros((28, 28, 3), np.float32), n=20),
        r"cannot score a batch of shape \[256, 28, 28, 3\] .*; pass images as \[channels, height, width\]",
    ),
    (
        lambda: smooth(torch.nn.Conv1d(1, 3, 5)).certify(torch.zeros(1, 50), n=20),
        r"cannot score a batch of shape \[256, 50\] .*; set `input_shape` if one input is not of shape \[50\]",
    ),
    (lambda: smooth(LogisticRegression()), r"a LogisticRegression; pass `lambda x: estimator.predict_proba\("),
    (lambda: smooth().certify(IMAGE, index=[1, 2]), "one `index` per input"),
    (lambda: smooth().certify(IMAGE, index=-1), "`index`"),
    (lambda: smooth().counts(IMAGE, 2**32), "2\\*\\*32"),
]


@pytest.mark.parametrize(("call", "message"), CASES, ids=[message for _, message in CASES])
def test_bad_values(call, message):
    with pytest.raises(UsageError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: smoothcert.train_run("mnist-catrs-0.50", "runs"),
            "`TrainConfig` objects, such as `load_recipe` returns, but got",
        ),
        (
            lambda: smoothcert.train_runs(["mnist-catrs-0.50"], "runs"),
            "`TrainConfig` objects, such as `load_recipe` returns",
        ),
        (lambda: smoothcert.train_runs(smoothcert.TrainConfig(), "runs"), "use `train_run` for it"),
        (
            lambda: smoothcert.certify_sequentially(smooth(), None, rule="table"),
            "a rule of `smoothcert.stopping`, such as",
        ),
    ],
)
def test_other_things_than_are_wanted(call, message):
    with pytest.raises(UsageError, match=message):
        call()


def test_the_text_of_a_classifier_says_its_noise():
    assert "sigma=0.5, num_classes=3, precision=fp32, form=plain" in repr(smooth())


@pytest.mark.filterwarnings("error")
def test_inputs_with_gradients_are_taken_without_a_word():
    assert smooth().certify(IMAGE.clone().requires_grad_(), n=20).counts.sum() == 20


def test_nan_scores_are_an_error_not_a_vote():
    with pytest.raises(SmoothcertError, match="NaN for 120 of 120"):
        smooth(model=lambda x: scores(x) * float("nan")).certify(IMAGE, n=20)


def test_vectors_have_no_range_unless_given():
    assert smooth().certify(torch.tensor([900.0, 0.0, -900.0]), n=20).prediction == 0
    with pytest.raises(UsageError, match="span"):
        smooth(input_range=(-1, 1)).certify(torch.tensor([900.0, 0.0, -900.0]), n=20)


def test_images_of_any_range_if_asked():
    assert smooth(input_range=None).certify(IMAGE * 7, n=20).counts.sum() == 20


def test_another_shape_after_the_first_votes_is_reported_in_one_sentence():
    smoothed = smoothcert.SmoothedClassifier(torch.nn.Linear(9, 3), sigma=0.25)
    smoothed.predict(torch.zeros(9), n=20)
    with pytest.raises(UsageError, match=r"cannot score a batch of shape \[256, 5\] .*; set `input_shape`"):
        smoothed.predict(torch.zeros(5), n=20)
