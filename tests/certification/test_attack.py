"""Attacks stay within their radius, find weaknesses, and break no valid certificate."""

import json

import numpy as np
import pytest
import torch

import smoothcert
from smoothcert.certification.attack import Trial, attack_dataset, perturb_images, surprise
from smoothcert.cli import main
from smoothcert.errors import UsageError
from smoothcert.methods.perturb import lengths
from smoothcert.results.records import Results
from smoothcert.statistics.integer_noise import grid_noise


@pytest.fixture(scope="module")
def smoothed(trained_lenet):
    return smoothcert.SmoothedClassifier(trained_lenet, 0.25, 10, micro_batch=64)


def test_a_linear_classifier_is_attacked_along_its_normal():
    """The solution is known: the smoothed boundary of two half-spaces is the plane between them."""
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2, bias=False))
    model[1].weight.data = torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0]])
    smoothed = smoothcert.SmoothedClassifier(model, 0.25, 2, micro_batch=64)
    images = torch.tensor([0.7, 0.3, 0.5, 0.5]).view(1, 1, 2, 2).repeat(2, 1, 1, 1)
    distance = 0.4 / 2**0.5
    radii = torch.tensor([0.95 * distance, 1.1 * distance])
    moved = perturb_images(smoothed, images, torch.tensor([0, 0]), radii, [0, 0], num_noises=16)
    difference = (moved - images).flatten(1)
    assert torch.nn.functional.cosine_similarity(difference, torch.tensor([[-1.0, 1, 0, 0]])).min() > 0.999
    votes = smoothed.counts(moved, 2000)
    assert votes.argmax(dim=1).tolist() == [0, 1], "only the larger radius crosses the boundary"


def test_perturbations_stay_within_radius_and_pixel_range(smoothed, mini):
    images, radii = mini.floats(range(4)), torch.tensor([0.1, 0.5, 1.0, 3.0])
    moved = perturb_images(smoothed, images, mini.labels[:4], radii, range(4), steps=5, num_noises=4)
    assert (lengths(moved.double() - images.double()).flatten() <= radii).all()
    assert (lengths(moved - images).flatten() > 0.5 * radii).all()
    assert moved.min() >= 0
    assert moved.max() <= 1


def test_vectors_may_have_any_range():
    """The attack moves vectors along the gradient by the radius, and not into [0, 1]."""
    model = torch.nn.Linear(3, 2)
    model.weight.data, model.bias.data = torch.tensor([[1.0, 0, 0], [0, 1.0, 0]]), torch.zeros(2)
    vectors = torch.tensor([[9.0, 8, 50], [-7, -8, -50]])
    moved = perturb_images(
        smoothcert.SmoothedClassifier(model, 0.5, 2), vectors, torch.tensor([0, 0]), torch.tensor([0.6, 1.0]), [0, 1]
    )
    step = torch.tensor([[-1.0, 1, 0]]) / 2**0.5
    torch.testing.assert_close(moved, vectors + torch.tensor([[0.6], [1.0]]) * step, rtol=0, atol=1e-4)


def test_sound_certificates_are_attacked_with_8_bit_images(trained_lenet, mini):
    sound = smoothcert.SmoothedClassifier(trained_lenet, 0.25, 10, micro_batch=64, noise=grid_noise(0.25, 784))
    images, radii = mini.floats(range(2)), torch.tensor([1.0, 2.0])
    moved = perturb_images(sound, images, mini.labels[:2], radii, range(2), steps=4, num_noises=4)
    assert torch.equal((moved * 255).round() / 255, moved)
    assert (lengths(moved.double() - images.double()).flatten() <= radii).all()
    assert (lengths(moved - images).flatten() > 0.3 * radii).all()


def test_uniform_noise_is_refused(trained_lenet, mini):
    other = smoothcert.SmoothedClassifier(trained_lenet, 0.25, 10, noise="uniform")
    with pytest.raises(UsageError, match="Gaussian"):
        perturb_images(other, mini.floats([0]), mini.labels[:1], torch.tensor([1.0]), [0])


def trial(idx, *, broken=0, length=0.4):
    return Trial(idx, 1, 1, 0.5, 0.5, length, 2 if broken else 1, broken)


def test_broken_certificates_are_significant_only_beyond_alpha():
    holds = [trial(idx) for idx in range(200)]
    assert surprise(holds, 0.001) == (200, 0, 1.0)
    assert surprise([*holds[1:], trial(0, broken=1)], 0.001)[2] > 0.1, "one in 200 can happen by chance"
    assert surprise([*holds[5:], *(trial(idx, broken=1) for idx in range(5))], 0.001)[2] < 1e-3
    assert surprise([trial(0, length=0.6)], 0.001)[0] == 0, "nothing is certified outside the ball"


def test_false_certificates_are_detected(smoothed, mini):
    """Certificates of radius 4 are false, and the attack breaks them."""
    labels = mini.labels[:3].numpy()
    claims = Results("claims", np.arange(3), labels, labels, np.full(3, 4.0), np.ones(3, bool), np.zeros(3))
    trials = attack_dataset(smoothed, mini, claims, range(3), [0.1], n=200, steps=10, num_noises=8)
    assert sum(trial.broken for trial in trials if trial.within == 4.0) >= 2
    assert not any(trial.broken for trial in trials if trial.within == 0.1)
    assert surprise(trials, 0.001)[2] < 1e-3


@pytest.mark.parametrize("radius", ["nan", "inf", "0", "-1"])
def test_invalid_radii_are_refused_before_files_are_read(radius, capsys):
    assert main(["attack", "nowhere.safetensors", "--radii", "0.5", radius]) == 2
    assert "`--radii` to be finite and > 0" in capsys.readouterr().err


def test_the_command_finds_no_broken_certificate(checkpoint, tmp_path, capsys):
    out, attacks = tmp_path / "certify-a.tsv", tmp_path / "attacks.tsv"
    common = ["--skip", "250", "--device", "cpu"]
    assert main(["certify", str(checkpoint), "--n", "500", "--out", str(out), *common]) == 0
    options = ["--certificates", str(out), "--steps", "5", "--noises", "4", "--n", "200", "--radii", "0.25", "3"]
    capsys.readouterr()
    assert main(["attack", str(checkpoint), *options, "--out", str(attacks), "--json", *common]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["certificates"] >= 3
    assert summary["broken"] == 0
    near, far = summary["radii"]
    assert near["accuracy_under_attack"] >= near["certified_accuracy"] > 0
    assert far["certified_accuracy"] == 0.0
    assert len(attacks.read_text().splitlines()) >= 1 + 4 * 2
    content = json.loads(out.with_suffix(".json").read_text())
    content["settings"]["model"]["sha256"] = "0"
    out.with_suffix(".json").write_text(json.dumps(content))
    assert main(["attack", str(checkpoint), *options, *common]) == 2
    assert "a different network" in capsys.readouterr().err
