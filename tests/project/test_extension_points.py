"""Everything with a name that users can choose is complete: CONTRIBUTING.md says how to add one.

Methods are tested in tests/methods/test_methods.py, their documentation in test_docs.py.
"""

import dataclasses
import inspect
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import smoothcert
from smoothcert.cli import main
from smoothcert.dataset_names import CLASSES, DIMENSIONS, TITLES
from smoothcert.report.tables.protocol import protocol_of
from smoothcert.results.sidecar_types import StopSettings
from smoothcert.results.stored_protocol import _PLANS
from smoothcert.statistics import noise, stopping

CERTIFICATION = Path(__file__).parents[2] / "docs/certification.md"
QUICK = ["--n", "200", "--n0", "20", "--max", "2", "--device", "cpu", "--out"]
MORE = {"radius": ["--radius", "0.25"], "budget": ["--budget", "1000"]}
"""Flags that a stopping rule cannot do without."""


VALUES = {"bool": (False, True), "float": (0.25, 0.5), "int": (24_000, 48_000), "tuple[float, ...]": ((0.25,), (0.5,))}
"""Two values of each type of option of a stopping rule."""


def concrete(module, base):
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, base)]
    return {kind.name: kind for kind in kinds if not inspect.isabstract(kind)}


RULES = concrete(stopping, stopping.StopRule)
NOISES = [name for name in concrete(noise, noise.Noise) if name != "grid"]  # which `--sound` chooses


@pytest.mark.parametrize("name", smoothcert.list_datasets())
def test_a_dataset_has_its_facts_and_loads_or_says_where_its_files_go(name, tmp_path):
    assert TITLES[name]
    if name == "mnist-mini":  # is inside the package
        data = smoothcert.load_dataset(name, "test", tmp_path)
        assert (len(data.classes), data.images[0].numel()) == (CLASSES[name], DIMENSIONS[name])
        return
    assert CLASSES[name] > 1
    with pytest.raises(smoothcert.SmoothcertError, match=f"{name} is not in {tmp_path}"):
        smoothcert.load_dataset(name, "test", tmp_path)


@pytest.mark.parametrize("name", smoothcert.list_models())
def test_a_network_classifies_and_comes_back_from_its_checkpoint(name, tmp_path):
    model = smoothcert.create_model(name, num_classes=7, in_channels=1).eval()
    x = torch.rand(2, 1, *(model.image_size or (32, 32)))
    smoothcert.save_checkpoint(tmp_path / "model.safetensors", model)
    again = smoothcert.load_checkpoint(tmp_path / "model.safetensors").model.eval()
    with torch.no_grad():
        assert model(x).shape == (2, 7)
        assert torch.equal(model(x), again(x))
    assert model.architecture == name


@pytest.mark.parametrize("name", NOISES)
def test_a_noise_proves_radii_is_drawn_and_recorded(name, checkpoint, tmp_path, capsys):
    kind = noise.make_noise(name, 0.25)
    radii = np.array([0.01, 0.1, 0.2])
    assert kind.radius(kind.failure_at(radii)) == pytest.approx(radii)
    assert noise.noise_of({"sigma": 0.25, **kind.settings()}) == kind
    assert main(["certify", str(checkpoint), "--noise", name, *QUICK, str(tmp_path / "a.tsv")]) == 0
    settings = json.loads((tmp_path / "a.json").read_text())["settings"]
    assert noise.noise_of(settings) == kind
    with pytest.raises(SystemExit):
        main(["certify", "--help"])
    assert name in capsys.readouterr().out
    assert name == "gaussian" or f"--noise {name}" in CERTIFICATION.read_text()


@pytest.mark.parametrize("name", RULES)
def test_a_stopping_rule_is_chosen_by_its_name(name, checkpoint, tmp_path):
    out = tmp_path / "a.tsv"
    assert main(["certify", str(checkpoint), "--stop", name, *MORE.get(name, []), *QUICK, str(out)]) == 0
    assert json.loads(out.with_suffix(".json").read_text())["settings"]["stop"]["rule"] == name
    assert f"`{name}`" in CERTIFICATION.read_text()


def options_of(rule):
    """Return the options of a stopping rule, but for those that only say which images share a budget."""
    return [field for field in dataclasses.fields(rule) if field.name not in ("images", "shard")]


def stored(rule):
    return {**rule.settings(), **rule.plan(1000, 0.001).settings()}


@pytest.mark.parametrize("name", RULES)
def test_the_results_of_a_stopping_rule_can_be_verified(name):
    rule = RULES[name](**{field.name: VALUES[field.type][0] for field in options_of(RULES[name])})
    assert _PLANS[name](1000, 0.001) == rule.plan(1000, 0.001)
    assert stored(rule).keys() <= StopSettings.__annotations__.keys()


@pytest.mark.parametrize(("name", "option"), [(name, field) for name in RULES for field in options_of(RULES[name])])
def test_stopping_rules_with_different_options_are_different_protocols(name, option):
    given = {field.name: VALUES[field.type][0] for field in options_of(RULES[name])}
    rules = [RULES[name](**{**given, option.name: value}) for value in VALUES[option.type]]
    assert len({protocol_of({"stop": stored(rule)}) for rule in rules}) == 2


def test_an_option_of_a_newer_stopping_rule_is_part_of_the_protocol():
    assert protocol_of({"stop": {"rule": "gap", "width": 0.1}}) == "stop gap width 0.1"
