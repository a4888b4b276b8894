"""Check for training steps on a single input, which some networks with BatchNorm do not support."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from smoothcert.distributed.ranks import Ranks
from smoothcert.distributed.sync_batchnorm import BatchNorm
from smoothcert.errors import UsageError
from smoothcert.methods import Method
from smoothcert.models import NamedModel
from smoothcert.training.step_draws import StepDraws


def has_single_inputs(plan: Sequence[tuple[int, int]], ranks: Ranks, synced: bool) -> bool:
    """Return True if, in some step on some rank, BatchNorm receives only one input (and its noise samples).

    >>> plan = [(0, 4), (4, 2)]
    >>> has_single_inputs(plan, Ranks(), synced=False), has_single_inputs([*plan, (6, 1)], Ranks(), synced=False)
    (False, True)
    >>> [has_single_inputs(plan, Ranks(0, size), synced) for size, synced in ((2, False), (2, True), (3, False))]
    [True, False, True]
    """
    # If a step has fewer inputs than there are ranks, every rank processes all of them.
    return any(images == 1 or (not synced and ranks.size <= images < 2 * ranks.size) for _, images in plan)


def check_single_input(model: NamedModel, method: Method, shape: Sequence[int], batch: int) -> None:
    """Raise if a network cannot be trained on a single input, because BatchNorm would get only one value per channel.

    The result depends on both network and method, so the check computes the loss of a training step, which changes the
    network's BatchNorm statistics.
    """
    if not any(isinstance(module, BatchNorm) for module in model.modules()):
        return
    x, y = torch.zeros(1, *shape), torch.zeros(1, dtype=torch.int64)
    soft = torch.full((1, model.num_classes), 1 / model.num_classes)
    try:
        with torch.random.fork_rng(devices=[]):
            method.step(model.train(), x, y, draws=StepDraws(0, 0), epoch=torch.zeros(()), soft=soft)
    except UsageError:
        raise
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):  # another problem, which the first step reports
            return
        kind = type(model.network).__name__
        raise UsageError(
            f"Expected `batch` to leave at least two inputs per process in every step, because {kind} uses BatchNorm, "
            f"but got {batch}, which leaves only one in some steps; choose another batch size."
        ) from error
