"""What tests of training share: small configurations, and a training process to be killed, which must start fast."""

import torch

from smoothcert.config import TrainConfig
from smoothcert.methods import METHODS
from smoothcert.trainer import fit

SMALL = {"num_noises": 2, "attack_steps": 2}


def options(method):
    return {key: value for key, value in SMALL.items() if key in METHODS[method].__dataclass_fields__}


def configure(method, **changes):
    common = {"dataset": "mnist-mini", "batch": 32, "epochs": 3, "learning_rate": 0.02, "lr_step": 1}
    return TrainConfig(**{"name": f"test-{method}", "method": method, "options": options(method), **common, **changes})


def train(config, folder, data, **more):
    soft = torch.nn.functional.one_hot(data.labels, 10).float() * 0.9 + 0.01
    return fit(config, folder, data, data.subset(range(20)), soft=soft, **more)


def single_threaded(config, folder, data):
    torch.set_num_threads(1)
    train(config, folder, data)
