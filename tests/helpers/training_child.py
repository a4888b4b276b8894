"""Small configurations for tests of training, and training processes to be killed."""

import multiprocessing
import os
import signal
import sys
import time
from functools import partial

import torch

from smoothcert.checkpoints import tensor_files
from smoothcert.methods import METHODS
from smoothcert.training.config import TrainConfig
from smoothcert.training.fit import fit

SMALL = {"num_noises": 2, "attack_steps": 2, "attack_epoch": 2}
SAMPLED = {"sampling": "replacement", "sampling_epoch": 2, "discard_below": 0.15, "discard_samples": 20}
SAMPLED |= {"reweight_every": 2}


def options(method):
    if method == "gaussian":  # with one noise sample, its default
        return {}
    return {key: value for key, value in SMALL.items() if key in METHODS[method].__dataclass_fields__}


def configure(method, **changes):
    common = {"dataset": "mnist-mini", "batch": 32, "epochs": 3, "learning_rate": 0.02, "lr_step": 1}
    return TrainConfig(**{"name": f"test-{method}", "method": method, "options": options(method), **common, **changes})


def train(config, folder, data, **more):
    soft = torch.nn.functional.one_hot(data.labels, 10).float() * 0.9 + 0.01
    return fit(config, folder, data, data.subset(range(20)), soft=soft, **more)


def single_threaded(config, folder, data):
    """Train with slow saves, so that the parent can observe a file while it is being written."""
    torch.set_num_threads(1)
    tensor_files.save_file = partial(save_slowly, seconds=0.03)
    train(config, folder, data)


def command(log, arguments, *, slow_disk=False, spawn=False):
    """Run a command in its own session, as a terminal does, with its output in a file."""
    from smoothcert.cli import main

    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    sys.stderr = sys.stdout = open(log, "w", buffering=1)  # noqa: SIM115
    os.dup2(sys.stderr.fileno(), 2)
    if slow_disk:
        tensor_files.save_file = save_slowly
    if spawn:
        multiprocessing.set_start_method("spawn", force=True)
    sys.exit(main(arguments))


def save_slowly(tensors, path, header, *, save=tensor_files.save_file, seconds=0.2):
    path.write_bytes(b"half")
    time.sleep(seconds)
    save(tensors, path, header)
