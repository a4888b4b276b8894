"""Every method against recorded steps of the published code with the same random draws, in float64."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from smoothcert.methods import create_method

CASES = {
    "gaussian": ("gaussian", {}),
    "stability": ("stability", {"gamma": "weight"}),
    "smoothadv": ("smoothadv", {"epsilon": "attack_radius", "steps": "attack_steps"}),
    "smoothadv_warmup": ("smoothadv", {"epsilon": "attack_radius", "steps": "attack_steps", "warmup": "warmup"}),
    "macer": ("macer", {"lam": "weight", "beta": "temperature", "gamma": "margin"}),
    "consistency": ("consistency", {"lam": "weight", "entropy": "entropy_weight"}),
    "smoothadv_consistency": (
        "smoothadv-consistency",
        {"lam": "weight", "entropy": "entropy_weight", "epsilon": "attack_radius", "steps": "attack_steps"},
    ),
    "smoothmix": (
        "smoothmix",
        {
            "step_size": "step_size",
            "steps": "attack_steps",
            "eta": "weight",
            "one_step_adversary": "one_step_adversary",
        },
    ),
    "catrs": ("catrs", {"epsilon": "attack_radius", "steps": "attack_steps", "lam": "weight"}),
}
CASES["eth"] = CASES["eth_small"] = ("first-failure", {"epsilon": "step_size", "steps": "attack_steps"})
CASES["eth_noattack"] = ("first-failure", {"epsilon": "step_size"})
CASES["smoothmix_one_step"] = CASES["smoothmix"]
CASES["catrs_m8"] = CASES["catrs_imagenet"] = CASES["catrs"]
TOLERANCE = {"rtol": 0, "atol": 1e-9}


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.fc = nn.Linear(32, 5)

    def forward(self, x):
        x = F.avg_pool2d(self.bn1(self.conv1(x)).relu(), 2)
        x = F.avg_pool2d(self.bn2(self.conv2(x)).relu(), 2)
        return self.fc(x.flatten(1))


class Recorded:
    """Returns the recorded draws in order, transposed from image-major to sample-major where needed."""

    def __init__(self, arrays, image_major):
        self.arrays, self.image_major, self.next = arrays, image_major, {"normal": 0, "uniform": 0}

    def take(self, kind):
        array = torch.from_numpy(self.arrays[f"{kind}/{self.next[kind]}"])
        self.next[kind] += 1
        return array

    def noise(self, x, count):
        if self.image_major:
            return self.take("normal").view(len(x), count, *x.shape[1:]).transpose(0, 1)
        return torch.stack([self.take("normal") for _ in range(count)])

    def uniform(self, x, count):
        return self.take("uniform").view(len(x), count)

    def direction(self, x):
        return torch.full_like(x, float("nan"))  # no gradient vanishes in the recorded steps

    def images(self, x):
        return len(x)


def load(shared, case):
    folder = shared / "published" / ("steps-eth" if case.startswith("eth") else "steps")
    options = json.loads((folder / f"{case}.json").read_text())
    name, words = CASES[case]
    given = {ours: options[theirs] for theirs, ours in words.items()}
    given |= {"num_noises": options["num_noises"]} if "num_noises" in options else {}
    if name == "smoothadv" and case == "smoothadv":
        given["warmup"] = 1
    if options.get("attack") is False:
        given["attack_steps"] = 0
    if options.get("mask_from") == "soft label":
        given["confidence"] = "soft-label"
    method = create_method(name, options["sigma"], given)
    epoch = torch.tensor(float(options.get("epoch", 0)), dtype=torch.float64)
    return np.load(folder / f"{case}.npz"), method, epoch


@pytest.mark.parametrize("case", CASES)
def test_recorded_steps(shared, case):
    arrays, method, epoch = load(shared, case)
    torch.manual_seed(0)
    model = Network().double().train()
    model.load_state_dict(
        {key.removeprefix("param/"): torch.from_numpy(arrays[key]) for key in arrays.files if key.startswith("param/")},
        strict=False,
    )
    x, y = (torch.from_numpy(arrays[key]) for key in ("x", "y"))
    soft = torch.from_numpy(arrays["soft"]) if method.uses_soft_labels else torch.zeros_like(y)
    draws = Recorded(arrays, image_major=method.name in ("smoothadv", "macer"))
    size = len(x) // method.split
    for number in range(method.split):
        part = slice(number * size, (number + 1) * size)
        model.zero_grad()
        output = method.step(model, x[part], y[part], draws=draws, epoch=epoch, soft=soft[part])
        output.loss.backward()
        expected = {k.removeprefix(f"step{number}/"): arrays[k] for k in arrays.files if k.startswith(f"step{number}/")}
        assert torch.allclose(output.loss.detach(), torch.tensor(expected["loss"]), **TOLERANCE)
        for name, parameter in model.named_parameters():
            assert torch.allclose(parameter.grad, torch.from_numpy(expected[f"grad/{name}"]), **TOLERANCE), name
        for name, buffer in model.named_buffers():
            if "running" in name:
                assert torch.allclose(buffer, torch.from_numpy(expected[f"running/{name}"]), **TOLERANCE), name
        for key in ("adversarial", "clean_side", "worst_noise"):
            if key in expected:
                found = output.parts[key].detach()
                if method.name == "smoothadv":  # recorded once per noise sample
                    found = found.repeat_interleave(method.num_noises, dim=0)
                assert torch.allclose(found, torch.from_numpy(expected[key]), **TOLERANCE), key
        if "K" in expected:
            assert output.parts["kept"].tolist() == np.maximum(expected["K"], 1).tolist()
    taken = {kind: sum(key.startswith(kind + "/") for key in arrays.files) for kind in ("normal", "uniform")}
    assert draws.next == taken, "every recorded draw was asked for"
    assert model.bn1.training, "the attack gave the network its mode back"


def test_all_recorded_cases_are_here(shared):
    assert sorted(path.stem for path in (shared / "published").glob("steps*/*.npz")) == sorted(CASES)
    assert sum(load(shared, case)[1].split for case in CASES) == 31 + 12
