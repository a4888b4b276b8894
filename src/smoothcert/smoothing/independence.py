"""Whether a network answers every input by itself: votes that hang together prove nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from smoothcert.errors import UsageError
from smoothcert.smoothing.counting import Classify

_BEYOND_ROUNDING = 1e-3  # of the largest score


def check_independence(classify: Classify, noisy: Tensor) -> None:
    """Refuse a network whose scores of an input change with the others of its micro-batch.

    It sees a micro-batch twice, the second time with every other input in another range. One that draws random numbers
    of its own, as dropout does, has the same ones both times; one that draws them where PyTorch cannot know is let
    through, since its answers always change.
    """
    if len(noisy) < 2:
        return
    exchanged = noisy.clone()
    exchanged[1::2] = 3 * exchanged[1::2] - 1
    answers = _kept(classify, noisy)
    if _differ(answers, _kept(classify, exchanged)) and not _differ(answers, _kept(classify, noisy)):
        raise UsageError(
            "The model's scores of an input change with the other inputs beside it, as with BatchNorm in training mode "
            "or activations quantised by the batch: such votes are not independent, and prove nothing. Put it into "
            "eval mode, or choose `micro_batch=1`."
        )


def _kept(classify: Classify, inputs: Tensor) -> Tensor:
    """Return the scores of the inputs that stay the same."""
    with torch.random.fork_rng(devices=[inputs.device] if inputs.is_cuda else []):
        torch.default_generator.manual_seed(0)
        if inputs.is_cuda:
            with torch.cuda.device(inputs.device):
                torch.cuda.manual_seed(0)  # of this device alone: those of others are not given back
        return classify(inputs.clone())[::2].double()


def _differ(first: Tensor, second: Tensor) -> bool:
    return bool((first - second).abs().max() > _BEYOND_ROUNDING * first.abs().max())
