"""Model cards: a YAML header as hubs read it, whatever the names, and no local paths."""

import json
import math
import re
import textwrap
import tomllib
from dataclasses import dataclass

import own_networks
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from training_child import configure

import smoothcert
from smoothcert.methods import METHODS
from smoothcert.methods.gaussian import Gaussian
from smoothcert.training.config import TrainConfig, make_config, read_config
from smoothcert.training.model_card import _quoted, model_card

ENVIRONMENT = {"device": "a CPU", "versions": {"smoothcert": "0.1.0", "torch": "2.13.0"}}
METRICS = [{"test_accuracy": 11.0, "seconds": 1.0}, {"test_accuracy": 97.125, "seconds": 1.0}]
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)


def header_of(card):
    opening, header, text = card.split("---\n", 2)
    assert opening == ""
    assert text.startswith("\n# ")
    return yaml.safe_load(header)


def header(metrics=METRICS, **fields):
    return header_of(model_card(TrainConfig(**fields), metrics, ENVIRONMENT))


def test_the_header_has_the_fields_of_model_hubs():
    assert header(name="first", dataset="Fashion-MNIST", method="consistency") == {
        "library_name": "smoothcert",
        "pipeline_tag": "image-classification",
        "tags": ["randomized-smoothing", "certified-robustness", "consistency"],
        "datasets": ["fashion_mnist"],
        "metrics": ["accuracy"],
        "model-index": [
            {
                "name": "first",
                "results": [
                    {
                        "task": {"type": "image-classification"},
                        "dataset": {"name": "Fashion-MNIST", "type": "fashion_mnist", "split": "test"},
                        "metrics": [
                            {
                                "type": "accuracy",
                                "name": "accuracy with one noise sample per input",
                                "value": pytest.approx(0.97125, abs=5e-5),
                            }
                        ],
                    }
                ],
            }
        ],
    }


@pytest.mark.parametrize(("dataset", "name"), [("mnist-mini", "mnist"), ("cifar-10", "cifar10")])
def test_datasets_have_the_names_of_hubs(dataset, name):
    found = header(dataset=dataset)
    assert found["datasets"] == [name]
    assert found["model-index"][0]["results"][0]["dataset"]["type"] == name


def test_a_folder_with_the_name_of_a_dataset_is_not_that_dataset():
    assert "datasets" not in header(dataset="/data/mnist")
    assert 'dataset = ".../mnist"' in model_card(TrainConfig(dataset="/data/mnist"), METRICS, ENVIRONMENT)


@pytest.mark.parametrize("metrics", [[], [{"seconds": 1.0}], [{"test_accuracy": math.nan}]])
def test_without_an_accuracy_there_is_no_model_index(metrics):
    assert header(metrics).keys() == {"library_name", "pipeline_tag", "tags", "datasets"}


def test_names_that_look_like_other_yaml_stay_strings():
    for name in ("1.0", "null", "true", "2026-01-01", "0x10"):
        assert header(name=name)["model-index"][0]["name"] == name


@given(TEXTS)
def test_quoted_text_is_read_back(text):
    assert yaml.safe_load(f"a:\n- {_quoted(text)}\n") == {"a": [text]}
    assert "\n" not in _quoted(text)


@settings(deadline=None)
@given(TEXTS.filter(bool))
def test_odd_names_of_methods_and_datasets_keep_the_header_readable(text):
    @dataclass(frozen=True, kw_only=True)
    class Odd(Gaussian):
        name = text

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, text, Odd)
        found = header(name="odd", method=text, dataset=f"/data/{text}.npz")
    assert found["tags"][-1] == text
    assert "datasets" not in found


@pytest.mark.parametrize("dataset", ["/home/someone/secret/photos", "./secret/photos/", r"C:\secret\photos"])
def test_the_card_shows_no_local_paths(dataset, monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Filed(Gaussian):
        name = "filed"
        table: str = ""

    monkeypatch.setitem(METHODS, "filed", Filed)
    sampling = {"sampling": "replacement", "discard_below": 0.5, "discard_file": "/secret/shares.npy"}
    options = {"table": "/secret/table.csv"}
    config = TrainConfig(dataset=dataset, teacher="/secret/teacher", method="filed", options=options, **sampling)
    card = model_card(config, METRICS, ENVIRONMENT)
    assert "secret" not in card
    assert "datasets" not in header_of(card)
    assert header_of(card)["model-index"][0]["results"][0]["dataset"] == {
        "name": ".../photos",
        "type": "local",
        "split": "test",
    }
    assert all(f'".../{name}"' in card for name in ("photos", "teacher", "shares.npy", "table.csv"))


def test_a_run_has_a_card_with_its_accuracy_and_configuration(tmp_path):
    config = configure("gaussian", epochs=1, batch=512)
    folder = smoothcert.train_run(config, tmp_path).parent
    card = (folder / "README.md").read_text(encoding="utf-8")
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    (result,) = header_of(card)["model-index"][0]["results"]
    assert result["metrics"][0]["value"] == pytest.approx(last["test_accuracy"] / 100, abs=1e-4)
    (toml,) = re.findall(r"```toml\n(.*?)```", card, re.DOTALL)
    assert make_config(tomllib.loads(toml), "card") == read_config(folder / "config.toml")


def test_the_card_of_a_network_of_ones_own(tmp_path):
    trained = own_networks.train("Mlp", "gaussian", tmp_path, name="points", validation=0.25, init="")
    card = (tmp_path / "points" / "README.md").read_text(encoding="utf-8")
    assert trained.about["name"] == "points"
    found = header_of(card)
    assert found["pipeline_tag"] == "tabular-classification"
    assert "datasets" not in found
    assert "on the scale of the inputs" in card
    assert re.search(r"\d % of the test data\n.*\d % of the validation data\n", card)
    (code,) = re.findall(r"^    checkpoint = .*?\n\n", card, re.DOTALL | re.MULTILINE)
    code = code.replace("PATH_OF_THIS_FOLDER", str(tmp_path / "points")).replace("certify.tsv", str(tmp_path / "c.tsv"))
    code = code.replace('c.tsv")', 'c.tsv", n=100)')
    names = {"FUNCTION_THAT_CREATES_THE_NETWORK": own_networks.Mlp, "TEST_DATA": own_networks.clouds("test", 6)}
    exec(textwrap.dedent(code), {**names, "smoothcert": smoothcert})
    assert len(smoothcert.read_results(tmp_path / "c.tsv").idx) == 6


def test_without_test_data_the_card_claims_no_accuracy():
    assert "accuracy of the base" not in model_card(TrainConfig(), [{"seconds": 1.0}], ENVIRONMENT)
