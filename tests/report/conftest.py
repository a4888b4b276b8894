"""Fixtures shared by the tests of the report."""

import pytest
from page_runs import make_run


@pytest.fixture(scope="session")
def folder(tmp_path_factory, mini):
    """Four run folders: two methods at two noise levels."""
    root = tmp_path_factory.mktemp("runs")
    labels = mini.labels.numpy()[:300]
    for method, skill in (("gaussian", 1.5), ("catrs", 2.2)):
        for sigma in (0.25, 0.5):
            make_run(
                root / f"{method}-{sigma}", labels, method=method, sigma=sigma, skill=skill, sha256=mini.fingerprint
            )
    return root
