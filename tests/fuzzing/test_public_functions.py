"""Wrong types for the arguments of documented public functions: UsageError or another SmoothcertError, nothing else."""

import os
import warnings

import pytest
from public_calls import JUNK, calls

from smoothcert.errors import SmoothcertError

NAMES = (
    *(
        "SmoothedClassifier",
        "certify",
        "predict",
        "certify_dataset",
        "predict_dataset",
        "create_model",
        "create_method",
    ),
    *("list_models", "list_datasets", "list_recipes", "list_methods", "list_pretrained", "load_pretrained"),
    *("load_checkpoint", "save_checkpoint", "export_checkpoint", "load_dataset", "load_recipe", "select"),
    *("read_results", "read_counts", "TrainConfig", "lower_bound", "gaussian_radius", "certify_counts"),
    *("average_certified_radius", "certified_accuracy", "TableStop", "RadiusStop", "BudgetStop"),
)


@pytest.fixture(scope="module")
def valid_calls(tmp_path_factory):
    """The calls, with the working folder where junk names are written."""
    folder, before = tmp_path_factory.mktemp("public"), os.getcwd()
    os.chdir(folder)
    found = calls(folder)
    assert set(found) == set(NAMES)
    yield found
    os.chdir(before)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_types_give_a_usage_error(name, valid_calls):
    function, arguments = valid_calls[name]
    positional = isinstance(arguments, tuple)
    function(*arguments) if positional else function(**arguments)
    foreign = []
    for key in range(len(arguments)) if positional else arguments:
        for junk, value in JUNK.items():
            changed = (value,) if positional else {**arguments, key: value}
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    function(*changed) if positional else function(**changed)
            except SmoothcertError:
                pass
            except Exception as error:  # collected, so that all are shown at once
                foreign.append(f"{key}={junk}: {type(error).__name__}")
    assert not foreign
