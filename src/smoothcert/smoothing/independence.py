"""Check that a network scores each input independently of its batch; otherwise votes prove nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from smoothcert.errors import UsageError
from smoothcert.smoothing.counting import Classify

_BEYOND_ROUNDING = 1e-3  # relative to the largest score


def check_independence(classify: Classify, noisy: Tensor) -> None:
    """Raise if the scores of an input change with the other inputs of its micro-batch.

    The network scores a micro-batch twice, the second time with every other input moved to another range. PyTorch's
    random numbers, as of dropout, are the same both times. A network with other random numbers passes: its scores
    differ for equal inputs, too.
    """
    if len(noisy) < 2:
        return
    exchanged = noisy.clone()
    exchanged[1::2] = 3 * exchanged[1::2] - 1
    scores = _unchanged_scores(classify, noisy)
    moved = _unchanged_scores(classify, exchanged)
    if _differ(scores, moved) and not _differ(scores, _unchanged_scores(classify, noisy)):
        raise UsageError(
            "The model's scores of an input depend on the other inputs in the batch, as with BatchNorm in training "
            "mode or activations quantized per batch, so votes are not independent, and prove nothing. Put the model "
            "into eval mode, or choose `micro_batch=1`."
        )


def _unchanged_scores(classify: Classify, inputs: Tensor) -> Tensor:
    """Return the scores of the inputs that `check_independence` leaves unchanged."""
    with torch.random.fork_rng(devices=[inputs.device] if inputs.is_cuda else []):
        torch.default_generator.manual_seed(0)
        if inputs.is_cuda:
            with torch.cuda.device(inputs.device):
                torch.cuda.manual_seed(0)  # only this device: `fork_rng` does not restore others
        return classify(inputs.clone())[::2].double()


def _differ(first: Tensor, second: Tensor) -> bool:
    return bool((first - second).abs().max() > _BEYOND_ROUNDING * first.abs().max())
