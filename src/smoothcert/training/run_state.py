"""Save and restore the state of a run between two steps, as named tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from smoothcert.errors import SmoothcertError
from smoothcert.training.sampling import ImageSampler
from smoothcert.training.stepper import Stepper

_MOMENTS = {"momentum": "momentum_buffer", "moment1": "exp_avg", "moment2": "exp_avg_sq", "updates": "step"}
"""Names of the optimizer's tensors, by their prefix in a saved state; SGD has the first, AdamW the others."""


def take_state(stepper: Stepper, sampler: ImageSampler) -> dict[str, Tensor]:
    """Return the state that later steps depend on: network, optimizer, sums of metrics and image weights."""
    tensors = {f"model.{name}": value for name, value in stepper.model.state_dict().items()}
    for name, buffer in stepper.model.named_buffers():
        if f"model.{name}" not in tensors:  # a non-persistent buffer, which may still change with every step
            tensors[f"buffer.{name}"] = buffer
    for name, parameter in stepper.model.named_parameters():
        for prefix, key in _MOMENTS.items():
            if (moment := stepper.optimizer.state[parameter].get(key)) is not None:
                tensors[f"{prefix}.{name}"] = moment
    for name, value in zip(stepper.names, stepper.sums, strict=True):
        tensors[f"sum.{name}"] = value
    return tensors | sampler.state()


def restore_state(
    saved: tuple[dict[str, Tensor], int] | None, stepper: Stepper, sampler: ImageSampler, epoch_steps: int
) -> int:
    """Restore a saved state, if there is one, and return the number of steps already taken.

    `epoch_steps` is the number of steps per epoch.
    """
    if saved is None:
        return 0
    tensors, step = saved
    model, optimizer = stepper.model, stepper.optimizer
    weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    buffers = {name: value for name, value in model.named_buffers() if name not in shapes}
    expected = {f"{prefix}.{name}": w.shape for name, w in model.named_parameters() for prefix in _MOMENTS}
    expected |= {f"updates.{name}": torch.Size() for name, _ in model.named_parameters()}
    expected |= {f"buffer.{name}": value.shape for name, value in buffers.items()}
    wrong = shapes != {name: value.shape for name, value in weights.items()}
    wrong |= any(tensors[name].shape != shape for name, shape in expected.items() if name in tensors)
    if wrong or not any(name.startswith("sum.") and not value.dim() for name, value in tensors.items()):
        raise SmoothcertError(
            f"The saved state is incomplete or does not match {model.architecture}; to start over, delete "
            "state.safetensors and state.previous.safetensors in the run's folder."
        )
    model.load_state_dict(weights)
    for name, value in buffers.items():
        if (saved_value := tensors.get(f"buffer.{name}")) is not None:
            value.copy_(saved_value)
    for name, parameter in model.named_parameters():
        for prefix, key in _MOMENTS.items():
            if (moment := tensors.get(f"{prefix}.{name}")) is not None:
                like = parameter if moment.shape == parameter.shape else moment.to(parameter.device)
                optimizer.state[parameter][key] = torch.empty_like(like).copy_(moment)
    stepper.names = sorted(name.removeprefix("sum.") for name in tensors if name.startswith("sum."))
    stepper.sums = torch.stack([tensors[f"sum.{name}"] for name in stepper.names]).to(stepper.device)
    sampler.restore(tensors, epochs=-(-step // epoch_steps))
    return step
