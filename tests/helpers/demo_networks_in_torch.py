"""The quantized networks of the demo page as PyTorch modules."""

import torch

from smoothcert.demo.networks import network_weights
from smoothcert.models.lenet import LeNet


def as_lenet(name):
    network = LeNet()
    network.load_state_dict({key: torch.from_numpy(value) for key, value in network_weights(name).items()})
    return network.eval()
