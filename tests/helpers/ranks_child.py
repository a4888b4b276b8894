"""Trains every method for twenty steps, with and without BatchNorm: alone or under torchrun.

python ranks_child.py FILE        torchrun --nproc-per-node 2 ranks_child.py FILE

In double precision: in single precision, rounding can flip the sign of a ReLU's input, which twenty steps amplify.
"""

import gc
import os
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from training_child import options

import smoothcert
from smoothcert.distributed.ranks import join, leave
from smoothcert.methods import METHODS, create_method
from smoothcert.training.batches import ResidentData
from smoothcert.training.compute import plan_epoch
from smoothcert.training.stepper import Stepper

STEPS = 20
CASES = {method: (method, {}) for method in METHODS} | {
    "catrs-masked": ("catrs", {"attack": "masked"}),
    "catrs-from-label": ("catrs", {"confidence": "soft-label", "high": "mean", "mask": False}),
}


class Doubles(ResidentData):
    """Images in double precision."""

    def batch(self, inputs, seed, step, first=0):
        x, y, soft = super().batch(inputs, seed, step, first)
        return x.double(), y, soft.double()


def train(method, network, ranks):
    """Return the weights after mini-batches of 10 images, and a last one of 3, which four ranks cannot share."""
    torch.manual_seed(0)
    images = smoothcert.load_dataset("mnist-mini", "test").subset(range(0, 1000, 43)[:23])
    soft = torch.nn.functional.one_hot(images.labels, 10).float() * 0.9 + 0.01
    pixels = images.images if network == "lenet" else images.images[:, :, 8:20, 8:20]
    data = Doubles(pixels, images.labels, soft, "crop-flip")
    model = smoothcert.create_model(network, in_channels=1).double().train()
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9, weight_decay=1e-4)
    stepper = Stepper(model, method, optimizer, data, seed=3, precision="fp32", ranks=ranks, sync=True)
    plan = plan_epoch(len(data.labels), 10, method.split)
    for step in range(STEPS):
        epoch, number = divmod(step, len(plan))
        first, size = plan[number]
        part = ranks.share_of(size)
        indices = torch.arange(first + part.first, first + part.first + part.size)
        stepper.set_position(epoch, step, 0.02)
        stepper.take_step((indices,), size)
    return {**model.state_dict(), "sums": stepper.sums}


def main(path):
    torch.set_num_threads(1)
    ranks = join()
    ranks.connect(torch.device("cpu"))
    all_weights = {}
    for case, (name, given) in CASES.items():
        method = create_method(name, 0.25, {**options(name), **given})
        for network in ("lenet", "cifar_resnet8") if method.static else ("lenet",):
            weights = train(method, network, ranks)
            all_weights |= {f"{network} {case} {key}": value.contiguous() for key, value in weights.items()}
    if ranks.first:
        save_file(all_weights, path)
    leave()
    gc.collect()
    tasks = [Path(f"/proc/self/task/{task}/comm") for task in os.listdir("/proc/self/task")]
    left = [name for task in tasks if "gloo" in (name := task.read_text().strip())]
    assert not left, f"threads of the process group are left: {left}"


if __name__ == "__main__":
    main(sys.argv[1])
