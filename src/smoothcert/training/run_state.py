"""The state of a run between two steps, as named tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from smoothcert.errors import SmoothcertError
from smoothcert.training.sampling import ImageSampler
from smoothcert.training.stepper import Stepper


def take_state(stepper: Stepper, sampler: ImageSampler) -> dict[str, Tensor]:
    """Return everything that later steps depend on: weights, momentum, the epoch's sums so far, and images to draw."""
    tensors = {f"model.{name}": value for name, value in stepper.model.state_dict().items()}
    for name, parameter in stepper.model.named_parameters():
        if (buffer := stepper.optimizer.state[parameter].get("momentum_buffer")) is not None:
            tensors[f"momentum.{name}"] = buffer
    for name, value in zip(stepper.names, stepper.sums, strict=True):
        tensors[f"sum.{name}"] = value
    return tensors | sampler.state()


def restore_state(saved: tuple[dict[str, Tensor], int] | None, stepper: Stepper, sampler: ImageSampler) -> int:
    """Restore a saved state, if there is one, and return its number of steps."""
    if saved is None:
        return 0
    tensors, step = saved
    model, optimizer = stepper.model, stepper.optimizer
    weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    momentum = {f"momentum.{name}": value.shape for name, value in model.named_parameters()}
    wrong = shapes != {name: value.shape for name, value in weights.items()}
    wrong |= any(tensors[name].shape != shape for name, shape in momentum.items() if name in tensors)
    if wrong or not any(name.startswith("sum.") and not value.dim() for name, value in tensors.items()):
        raise SmoothcertError(f"The saved state does not fit a {model.architecture}; delete it to start over.")
    model.load_state_dict(weights)
    for name, parameter in model.named_parameters():
        if (buffer := tensors.get(f"momentum.{name}")) is not None:
            optimizer.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(buffer)
    stepper.names = sorted(name.removeprefix("sum.") for name in tensors if name.startswith("sum."))
    stepper.sums = torch.stack([tensors[f"sum.{name}"] for name in stepper.names]).to(stepper.device)
    sampler.restore(tensors)
    return step
