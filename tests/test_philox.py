import numpy as np
import pytest
import torch
from scipy import stats

from smoothcert.philox import normal, permutation, philox4x32, uniform

# Known answers of philox4x32 with ten rounds, as published with Random123 (counter, key, result).
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter, key, expected):
    words = tuple(torch.tensor([int(word, 16)]) for word in counter.split())
    first, second = (int(word, 16) for word in key.split())
    assert [int(word) for word in philox4x32(words, (first, second))] == [int(word, 16) for word in expected.split()]


def test_a_draw_depends_on_its_address_alone():
    whole = normal(5, (torch.arange(64).view(8, 8), torch.arange(8).view(8, 1), 3), 10)
    assert whole.shape == (8, 8, 10)
    assert torch.equal(whole[2, 5], normal(5, (21, 2, 3), 10))
    assert torch.equal(whole[2, 5, :7], normal(5, (21, 2, 3), 7)), "a longer draw begins with the shorter one"


@pytest.mark.parametrize(
    "other", [(6, (21, 2, 3)), (5, (22, 2, 3)), (5, (21, 3, 3)), (5, (21, 2, 4)), (5 + 2**40, (21, 2, 3))]
)
def test_every_part_of_the_address_matters(other):
    assert not torch.isclose(normal(5, (21, 2, 3), 100), normal(*other, 100)).any()


def test_normals_are_normal():
    draws = normal(11, (torch.arange(500), 0, 0), 2000).double().flatten().numpy()
    assert stats.kstest(draws, "norm").pvalue > 1e-3
    assert abs(draws.mean()) < 5 / np.sqrt(draws.size)
    assert abs(draws.var() - 1) < 5 * np.sqrt(2 / draws.size)
    assert abs(stats.kurtosis(draws)) < 5 * np.sqrt(24 / draws.size)


def test_normals_are_independent_across_pixels_samples_and_images():
    draws = normal(3, (torch.arange(40).view(1, 40), torch.arange(50).view(50, 1), 0), 8).double()
    for columns in (
        draws.reshape(-1, 8),
        draws.permute(0, 2, 1).reshape(-1, 40),
        draws.permute(1, 2, 0).reshape(-1, 50),
    ):
        correlation = torch.corrcoef(columns.T) - torch.eye(columns.shape[1])
        assert correlation.abs().max() < 5.5 / np.sqrt(len(columns))


def test_uniforms_are_uniform():
    draws = uniform(11, (torch.arange(100), 0, 0), 1000).double().flatten()
    assert float(draws.min()) >= 0
    assert float(draws.max()) < 1
    assert stats.kstest(draws.numpy(), "uniform").pvalue > 1e-3


def test_permutations_are_permutations_and_differ():
    first, again, second = (
        permutation(1, (0, 0, 0), 1000),
        permutation(1, (0, 0, 0), 1000),
        permutation(1, (1, 0, 0), 1000),
    )
    assert torch.equal(first.sort().values, torch.arange(1000))
    assert torch.equal(first, again)
    assert (first == second).sum() < 20
