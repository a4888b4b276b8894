"""Compare scores with a tolerance for rounding, and test whether votes differ by more than chance."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

ROUNDING = {"fp32": (1e-3, 4e-6), "tf32": (1e-2, 1e-3), "bf16": (5e-2, 1e-2)}
"""Tolerated rounding errors of margins by precision: relative to the margin, and to the largest score."""
_FALSE_ALARM = 1e-6
_BEYOND_CHANCE = 8  # standard deviations


def same_margins(first: Tensor, second: Tensor, relative: float, absolute: float) -> Tensor:
    """Return a mask of the rows in which `first` and `second` have the same margins up to rounding.

    A margin is the distance of a class's score from the row's largest score. Margins may differ by `relative` times the
    largest margin of their class in any row, so that a class masked with a huge negative score does not hide
    differences in other classes, plus `absolute` times the largest score. A row with NaN matches only a row with NaN.
    """
    both = torch.stack([first, second])
    invalid = both.isnan().any(dim=-1)
    both = both.masked_fill(invalid.unsqueeze(-1), 0.0)
    best = both.amax(dim=-1, keepdim=True)
    margins = torch.where(both == best, 0.0, best - both)
    sizes = [values.where(values.isfinite(), 0.0).abs() for values in (margins, best)]
    slack = relative * sizes[0].amax(dim=(0, 1)) + absolute * sizes[1].amax(dim=0)
    same = (margins[0] == margins[1]) | ((margins[0] - margins[1]).abs() <= slack)
    return same.all(dim=-1) & (invalid[0] == invalid[1])


def changed_for_good(changed: int, total: int) -> bool:
    """Return True if chance cannot explain how often a score differs from two later scores that agree.

    An input is scored three times. The three scores are not all equal for `total` inputs; for `changed` of these, only
    the first score differs. If scores vary at random and independently, each of the three is equally likely to differ.
    """
    return changed > 0 and bool(special.bdtrc(changed - 1, total, 1 / 3) < _FALSE_ALARM)


def overdispersed(votes: NDArray[np.float64], count: int) -> bool:
    """Return True if vote counts vary more than they would if the votes were independent.

    Each entry of `votes` is the number of votes for one class among `count` votes. If votes are independent, such
    numbers vary at most as much as binomial random numbers, even if the votes have different probabilities.
    """
    share = votes.mean() / count
    variance = count * share * (1 - share)
    if not variance:
        return False
    statistic = ((votes - count * share) ** 2).sum() / variance
    # Standard deviation of the statistic if entries are binomial.
    spread = np.sqrt(len(votes) * max(0.5, 2 + 1 / variance - 6 / count))
    return bool(statistic > len(votes) + _BEYOND_CHANCE * spread)
