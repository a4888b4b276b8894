"""What sequential certification saves on published confidences, with the published table as the oracle."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.fixture(scope="module")
def benchmark():
    return SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[2] / "benchmarks/sequential.py")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "skip_wrong", "saving"),
    [
        ("0.25", False, 5),
        ("0.5", False, 2.5),
        ("1.0", False, 3.5),
        ("0.25", True, 6),
        ("0.5", True, 3),
        ("1.0", True, 6),
    ],
)
def test_the_table_with_a_fraction_of_the_samples(benchmark, shared, sigma, skip_wrong, saving):
    row = benchmark.table_row(shared / "published/cifar10", sigma, skip_wrong)
    assert row["saving"] >= saving
    assert row["to_fixed"] <= 0.2, "in every draw, against all votes of the same draw"
    assert row["fixed_to_published"] < 0.4, "the confidences are those of the published table"
    assert row["to_published"] <= row["fixed_to_published"] + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("radius", [0.0, 0.25, 0.5, 0.75])
def test_one_radius_takes_few_samples(benchmark, shared, radius):
    row = benchmark.radius_row(shared / "published/cifar10", "0.25", radius)
    assert row["samples"] < 12_000
    assert -1.0 <= row["to_fixed"] <= 0.1, "power is what a yes or no with fewer samples costs, validity is not"
