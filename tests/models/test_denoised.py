"""Denoised smoothing: exact formulas where the noise is known, and wrong parts."""

import pytest
import torch

import smoothcert
from smoothcert.errors import UsageError


def test_a_perfect_noise_predictor_gives_the_image_back():
    """At the step whose level is exactly 2 sigma, removing the true noise must restore the image."""
    sigma = 0.3
    exact = 1 / (1 + (2 * sigma + 1e-12) ** 2)  # sqrt((1 - a) / a) = 2 sigma
    generator = torch.Generator().manual_seed(0)
    image, noise = torch.rand(4, 3, 5, 5, generator=generator), torch.randn(4, 3, 5, 5, generator=generator)
    steps = []

    def predict_noise(x, t):
        steps.append(t)
        return noise

    denoiser = smoothcert.OneStepDiffusion(predict_noise, [0.9, exact, 0.1], sigma)
    assert torch.allclose(denoiser(image + sigma * noise), image, atol=1e-6)
    assert steps[0].tolist() == [1] * 4


def test_the_first_step_with_enough_noise_is_used():
    schedule = torch.linspace(0.999, 0.01, 500)
    for sigma in (0.1, 0.25, 0.5, 1.0):
        denoiser = smoothcert.OneStepDiffusion(lambda x, t: x, schedule, sigma)
        levels = ((1 - schedule.double()) / schedule.double()).sqrt()
        assert levels[denoiser.step] >= 2 * sigma > levels[denoiser.step - 1]


def test_the_denoiser_gets_the_noise_level_and_raises_accuracy():
    """A mean over pixels removes most noise from constant images, which the classifier tells apart by a threshold."""
    levels = []

    def smooth(x, level):
        levels.append(level)
        return x.mean((1, 2, 3), keepdim=True).expand_as(x)

    def classify(x):  # by one pixel
        return torch.stack([0.5 - x[:, 0, 0, 0], x[:, 0, 0, 0] - 0.5], dim=1)

    images = torch.full((1, 1, 8, 8), 0.6)
    alone = smoothcert.SmoothedClassifier(classify, 0.5, 2).certify(images, n=1000)
    model = smoothcert.Denoised(smooth, classify, noise_level=0.5)
    denoised = smoothcert.SmoothedClassifier(model, 0.5, 2).certify(images, n=1000)
    assert set(levels) == {0.5}
    assert float(alone.radius) < 0.2 < float(denoised.radius)
    # The mean of 64 pixels crosses 0.5 at distance 8 * 0.1.
    assert float(denoised.radius) < 0.8


def test_settings_of_the_denoiser_identify_the_model(mini, tmp_path):
    network = smoothcert.load_pretrained("mnist-catrs-0.50").model
    for level in (0.5, 0.25):
        model = smoothcert.Denoised(lambda x, level: x, network, noise_level=level)
        smoothed = smoothcert.SmoothedClassifier(model, 0.5, 10)
        if level == 0.25:
            with pytest.raises(UsageError, match="different settings"):
                smoothcert.certify_dataset(smoothed, mini, tmp_path / "a.tsv", n=20, indices=[0])
        else:
            smoothcert.certify_dataset(smoothed, mini, tmp_path / "a.tsv", n=20, indices=[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: smoothcert.Denoised("net", lambda x: x), "`denoiser` to be a function or a module, but got a str"),
        (lambda: smoothcert.Denoised(lambda x: x[:, :1], torch.nn.Flatten())(torch.rand(2, 3, 4, 4)), "shape"),
        (lambda: smoothcert.OneStepDiffusion(torch.mul, [0.5, 0.9], 0.1), "non-empty, decreasing"),
        (lambda: smoothcert.OneStepDiffusion(torch.mul, [], 0.1), "non-empty, decreasing"),
        (lambda: smoothcert.OneStepDiffusion(torch.mul, [0.9, 0.5], 2.0), "at most 0.5 for this schedule, but got 2.0"),
        (lambda: smoothcert.OneStepDiffusion(torch.mul, [0.9, 0.5], -1.0), "sigma"),
    ],
)
def test_wrong_parts_are_one_sentence(make, message):
    with pytest.raises(UsageError, match=message):
        make()
