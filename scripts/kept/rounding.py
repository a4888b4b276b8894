"""Store the convolutions and linear layers of a trained network in bfloat16, before it is certified."""

import torch

from smoothcert.checkpoints.checkpoint import load_checkpoint
from smoothcert.checkpoints.tensor_files import read_tensors, write_tensors
from smoothcert.errors import SmoothcertError
from smoothcert.results.naming import certificates_in
from smoothcert.training.run_folder import RunFolder


def round_run(folder):
    """Round the matrices and filters of a finished run to bfloat16, which halves its file.

    BatchNorm and biases stay in float32. The kernels for CIFAR ResNets vote with exactly these values anyway. The
    certificates name the file by its hash, so a network that is already certified is refused.
    """
    run = RunFolder(folder)
    if not run.finished:
        raise SmoothcertError(f"{folder} holds no finished run.")
    if found := certificates_in(folder):
        raise SmoothcertError(f"{found[0]} certifies the network in float32; round networks before certifying them.")
    load_checkpoint(folder)  # raises if it is damaged
    weights, header = read_tensors(run.model)
    rounded = {
        name: weight.to(torch.bfloat16) if weight.is_floating_point() and weight.dim() > 1 else weight
        for name, weight in weights.items()
    }
    write_tensors(run.model, rounded, header)
