"""Building blocks of methods and attacks: losses under noise, l2 geometry and gradients with respect to inputs.

Noise tensors are [samples, images, ...]; norms are per image or per noisy image, over all other dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Scores = Callable[[Tensor], Tensor]
_SMALLEST_PROBABILITY = 1e-20


def scores_under(model: Scores, x: Tensor, noise: Tensor) -> Tensor:
    """Return the scores [samples, images, classes] of all noisy images, computed in one pass."""
    return model((x + noise).flatten(0, 1)).view(*noise.shape[:2], -1)


def cross_entropies(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy [samples, images] of scores [samples, images, classes]."""
    return -scores.log_softmax(dim=-1).gather(-1, labels.expand(len(scores), -1).unsqueeze(-1)).squeeze(-1)


def smoothed_nll(scores: Tensor, labels: Tensor) -> Tensor:
    """Return, for each image, -log of the label's mean probability over the noise samples."""
    mean = scores.softmax(dim=-1).mean(dim=0)
    return -mean.gather(-1, labels.unsqueeze(-1)).squeeze(-1).clamp(min=_SMALLEST_PROBABILITY).log()


def divergence(target: Tensor, scores: Tensor) -> Tensor:
    """Return KL(target || softmax(scores)) over the last dimension, with 0 log 0 = 0."""
    return F.kl_div(scores.log_softmax(dim=-1), target.expand_as(scores), reduction="none").sum(dim=-1)


def entropy(probabilities: Tensor) -> Tensor:
    """Return the entropy over the last dimension."""
    return -(probabilities * probabilities.clamp(min=_SMALLEST_PROBABILITY).log()).sum(dim=-1)


def lengths(tensor: Tensor, batch_dims: int = 1) -> Tensor:
    """Return the l2 norms over all but the first `batch_dims` dimensions, in a shape that broadcasts to `tensor`."""
    norms: Tensor = torch.linalg.vector_norm(tensor.flatten(batch_dims), dim=-1)
    return norms.view(*norms.shape, *[1] * (tensor.dim() - batch_dims))


def within(delta: Tensor, radius: Tensor | float, batch_dims: int = 1) -> Tensor:
    """Scale perturbations longer than `radius` down to slightly less than `radius`, as `torch.renorm` does."""
    length = lengths(delta, batch_dims)
    return delta * torch.where(length > radius, radius / (length + 1e-7), torch.ones_like(length))


def in_range(x: Tensor) -> Tensor:
    """Clamp a batch of images to [0, 1]; vectors and other inputs may have any range."""
    return x.clamp(0, 1) if x.dim() == 4 else x


def warmed_up(epoch: Tensor | int, epochs: int) -> Tensor:
    """Return the warm-up factor of an epoch, counted from 0: it grows linearly to 1 over `epochs` epochs."""
    return torch.as_tensor((epoch + 1) / epochs).clamp(max=1)


def gradient(objective: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """Return the gradient of a scalar objective at a point, without changing the weights' own gradients."""
    return gradient_and_value(lambda point: (value := objective(point), value), at)[0]


def gradient_and_value(objective: Callable[[Tensor], tuple[Tensor, Tensor]], at: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of the objective's first value at a point, and the objective's second value.

    `torch.compile` can trace only `torch.func.grad`; a network that is compiled separately needs `autograd.grad`.
    """
    result: Tensor
    if torch.compiler.is_compiling():
        with torch.no_grad():
            result, other = torch.func.grad(objective, has_aux=True)(at.detach())
        return result, other
    with torch.enable_grad():
        start = at.detach().requires_grad_()
        value, other = objective(start)
        if not value.requires_grad:  # the objective is constant
            return torch.zeros_like(at), other.detach()
        (result,) = torch.autograd.grad(value, start, materialize_grads=True)
    return result, other.detach()


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Put a network into eval mode during an attack, so that BatchNorm statistics do not change.

    The weights require no gradients in the meantime, because a separately compiled network would compute the gradients
    needlessly. If the attack itself is being compiled, the weights are not changed. At the end, everything is restored.
    """
    modules = list(model.modules())
    modes = [module.training for module in modules]
    weights = [] if torch.compiler.is_compiling() else [w for w in model.parameters() if w.requires_grad]
    for module in modules:
        module.training = False
    for weight in weights:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
        for weight in weights:
            weight.requires_grad_(True)
