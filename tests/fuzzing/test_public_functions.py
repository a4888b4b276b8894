"""Wrong types for the arguments of documented public functions: UsageError or another SmoothcertError, nothing else."""

import warnings

import pytest
from public_calls import JUNK, calls, documented

from smoothcert.data.registry import REGISTERED as DATASETS
from smoothcert.errors import SmoothcertError
from smoothcert.model_names import REGISTERED as MODELS

ABSTRACT = {"stopping.StopRule", "metrics.Certificates"}
"""Base classes and protocols, which cannot be called."""
UNCHECKED = {"StepDraws.noise", "StepDraws.uniform"}
"""Functions called in compiled training steps, which leave out checks."""
NAMES = [*(name for name in documented() if name not in ABSTRACT | UNCHECKED), "adapt_inputs, by range"]


@pytest.fixture(scope="module")
def valid_calls(tmp_path_factory):
    yield calls(tmp_path_factory.mktemp("public"))
    for registered in (DATASETS, MODELS):
        registered.clear()


@pytest.mark.parametrize("name", NAMES)
def test_wrong_types_give_a_usage_error(name, valid_calls, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where files named by junk are written
    assert name in valid_calls, "add a valid call to tests/helpers/public_calls.py"
    function, arguments = valid_calls[name]
    function(**arguments)
    foreign = []
    for key in arguments:
        for junk, value in JUNK.items():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    function(**{**arguments, key: value})
            except SmoothcertError:
                pass
            except Exception as error:  # collected, so that all are shown at once
                foreign.append(f"{key}={junk}: {type(error).__name__}: {str(error)[:100]}")
    assert not foreign


def test_exceptions_to_the_rule_exist():
    assert set(documented()) >= ABSTRACT | UNCHECKED
