"""What the training methods do to inputs: noise, l2 geometry, and the smoothed loss an adversary climbs.

Tensors of noise are [noises, images, ...]; geometry is per image (or per noise and image), over all other dimensions.
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
    """Return the scores [noises, images, classes] of every image under every noise, in one pass of the network."""
    return model((x + noise).flatten(0, 1)).view(*noise.shape[:2], -1)


def cross_entropies(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy [noises, images] of scores [noises, images, classes]."""
    return -scores.log_softmax(dim=-1).gather(-1, labels.expand(len(scores), -1).unsqueeze(-1)).squeeze(-1)


def smoothed_nll(scores: Tensor, labels: Tensor) -> Tensor:
    """Return -log of the label's mean probability over the noises [images]: the soft smoothed classifier's loss."""
    mean = scores.softmax(dim=-1).mean(dim=0)
    return -mean.gather(-1, labels.unsqueeze(-1)).squeeze(-1).clamp(min=_SMALLEST_PROBABILITY).log()


def divergence(target: Tensor, scores: Tensor) -> Tensor:
    """Return KL(target || softmax(scores)) over the last dimension, with 0 log 0 = 0."""
    return F.kl_div(scores.log_softmax(dim=-1), target.expand_as(scores), reduction="none").sum(dim=-1)


def entropy(probabilities: Tensor) -> Tensor:
    """Return the entropy over the last dimension."""
    return -(probabilities * probabilities.clamp(min=_SMALLEST_PROBABILITY).log()).sum(dim=-1)


def lengths(tensor: Tensor, batch_dims: int = 1) -> Tensor:
    """Return the l2 norms over all but the first `batch_dims` dimensions, shaped to broadcast back."""
    norms: Tensor = torch.linalg.vector_norm(tensor.flatten(batch_dims), dim=-1)
    return norms.view(*norms.shape, *[1] * (tensor.dim() - batch_dims))


def within(delta: Tensor, radius: Tensor | float, batch_dims: int = 1) -> Tensor:
    """Scale perturbations that are longer than `radius` down to it (to a hair less, as `torch.renorm` does)."""
    length = lengths(delta, batch_dims)
    return delta * torch.where(length > radius, radius / (length + 1e-7), torch.ones_like(length))


def gradient(objective: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """Return the gradient of a scalar objective; the weights' own gradients are neither computed nor touched.

    The compiler follows one way of asking for it, and a network that is compiled by itself the other.
    """
    found: Tensor
    if torch.compiler.is_compiling():
        with torch.no_grad():
            found = torch.func.grad(objective)(at.detach())
        return found
    with torch.enable_grad():
        start = at.detach().requires_grad_()
        value = objective(start)
        if not value.requires_grad:  # it does not depend on it
            return torch.zeros_like(at)
        (found,) = torch.autograd.grad(value, start, materialize_grads=True)
    return found


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Attack a network in eval mode, so that its BatchNorm statistics stay as they are; restore every mode after.

    Its weights ask for no gradient meanwhile, which a network that is compiled by itself would compute in vain.
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
