"""The quantized networks of the demo page as PyTorch modules."""

import gzip

from safetensors.torch import load

from smoothcert.demo.networks import packed_network
from smoothcert.models.lenet import LeNet


def as_lenet(name):
    stored, network = load(gzip.decompress(packed_network(name))), LeNet()
    for key, value in network.state_dict().items():
        layer, part = key.split(".")
        scale = stored[f"{layer}.scale"].view(-1, *[1] * (value.dim() - 1)) if part == "weight" else 1
        value.copy_(stored[key].float() * scale)
    return network.eval()
