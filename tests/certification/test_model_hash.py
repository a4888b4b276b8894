import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from smoothcert.certification.model_hash import fingerprint_model
from smoothcert.errors import UsageError


class Shifted(nn.Module):
    def __init__(self, by, *, buffer=None, hidden=None):
        super().__init__()
        self.by, self.hidden = by, [hidden]
        self.register_buffer("buffer", buffer, persistent=False)


def quantized(scale, dtype=torch.qint8):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.ReLU(), nn.LSTM(4, 2))
    with torch.no_grad():
        network[1].weight.mul_(scale)
        network[3].weight_hh_l0.mul_(scale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(network, {nn.Linear, nn.LSTM}, dtype=dtype)


def per_channel(scale):
    values = torch.quantize_per_channel(torch.ones(2, 3), torch.tensor([0.1, scale]), torch.zeros(2), 0, torch.qint8)
    return Shifted(0, buffer=values)


def filled(network, value=0.5):
    for weight in network.parameters():
        nn.init.constant_(weight, value)
    return network


def normed(value):
    network = filled(parametrizations.weight_norm(nn.Linear(2, 2)))
    nn.init.constant_(network.parametrizations.weight.original0, value)
    return network


def traced(activation):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(nn.Sequential(filled(nn.Linear(2, 2)), activation), torch.zeros(1, 2))


class Less(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by, self.linear = by, filled(nn.Linear(2, 2))

    def forward(self, x):
        return self.linear(x - self.by)


PAIRS = {
    "weights": lambda one: filled(nn.Linear(2, 2), 0.5 if one else 0.25),
    "quantized per tensor": lambda one: quantized(1 if one else 3),
    "quantized per channel": lambda one: per_channel(0.2 if one else 0.4),
    "sparse": lambda one: Shifted(0, buffer=torch.tensor([0.0, 1.0 + one]).to_sparse()),
    "non-persistent buffer": lambda one: Shifted(0, buffer=torch.tensor(1.0 + one)),
    "number attribute": lambda one: Shifted(0.1 if one else 0.2),
    "tensor attribute": lambda one: Shifted(torch.tensor([0.1 if one else 0.2])),
    "network in a list": lambda one: Shifted(0, hidden=filled(nn.Linear(2, 2), 0.5 + one)),
    "activation": lambda one: nn.Sequential(nn.ReLU() if one else nn.GELU()),
    "stride": lambda one: filled(nn.Conv2d(1, 1, 3, stride=1 + one)),
    "parametrisation": lambda one: normed(1.0 + one),
    "traced code": lambda one: traced(nn.ReLU() if one else nn.Tanh()),
    "scripted number": lambda one: torch.jit.script(Less(0.5 if one else 0.25)),
    "graph": lambda one: torch.fx.symbolic_trace(
        nn.Sequential(filled(nn.Linear(2, 2)), nn.ReLU() if one else nn.Tanh())
    ),
    "dtype": lambda one: filled(nn.Linear(2, 2)).to(torch.bfloat16 if one else torch.float32),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", PAIRS)
def test_models_have_the_same_fingerprint_only_if_they_are_equal(kind):
    first, same, other = (PAIRS[kind](one) for one in (True, True, False))
    assert fingerprint_model(first) == fingerprint_model(same) != fingerprint_model(other)


def test_fingerprints_without_values():
    def fingerprint(*layers):
        return fingerprint_model(nn.Sequential(*layers), values=False)

    assert fingerprint(nn.Linear(2, 3), nn.ReLU()) == fingerprint(nn.Linear(2, 3), nn.ReLU())
    others = {fingerprint(nn.Linear(2, 3), layer) for layer in (nn.ReLU(), nn.Tanh(), nn.Dropout(0.1), nn.Dropout(0.2))}
    assert len(others | {fingerprint(nn.Linear(2, 4), nn.ReLU())}) == 5


def test_fingerprint_ignores_mode_and_use():
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout()).eval()
    before = fingerprint_model(network)
    network(torch.zeros(1, 1, 4, 4))
    assert fingerprint_model(network.train()) == before
    assert fingerprint_model(copy.deepcopy(network)) == before
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    assert fingerprint_model(tied) == fingerprint_model(copy.deepcopy(tied))


def test_hooks_count_by_name():
    network = filled(nn.Linear(2, 2))
    before = fingerprint_model(network)
    handle = network.register_forward_hook(lambda module, inputs, output: -output)
    assert fingerprint_model(network) != before
    handle.remove()
    assert fingerprint_model(network) == before


@pytest.mark.filterwarnings("ignore")
def test_unreadable_weights_are_refused():
    with pytest.raises(UsageError, match="cannot be read .* call it once first"):
        fingerprint_model(nn.LazyLinear(3))


def test_digests_in_published_sidecars_stay_valid():
    """Digests are part of the file format: interrupted runs and shards compare them."""
    network = nn.Sequential(filled(nn.Linear(2, 2)), Shifted(0.5, buffer=torch.ones(2), hidden=filled(nn.Linear(2, 1))))
    assert fingerprint_model(network) == "8360b3450845537fce95ba6c621c93e6954df20f6200e93eb4de2c9299e45769"
