"""Count votes on one device; noise, scores and counters stay on the device until all votes are counted.

On the CPU, several threads take micro-batches from one queue (`smoothcert.smoothing.workers`).

The unit of work is the micro-batch: `micro_batch` consecutive noise samples of one input, the first of which has a
sample number that is a multiple of `micro_batch`. The network only sees whole micro-batches, because kernels may round
differently for other shapes. So a vote depends only on (seed, index, sample number), and not on how the work was
batched, sharded or interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from smoothcert.errors import SmoothcertError, is_out_of_memory
from smoothcert.models import Ensemble
from smoothcert.smoothing.gathering import Gathering
from smoothcert.smoothing.workers import share_out

Classify = Callable[[Tensor], Tensor]
"""Maps one micro-batch of noisy inputs to scores [micro_batch, classes]."""
Draw = Callable[[Tensor, Tensor], Tensor]
"""Maps, for each micro-batch, the index of its input and its sample numbers [micro-batches, rows] to noisy inputs."""
Work = tuple[Tensor, Tensor]
"""For each micro-batch to count, the index of its input, and its own index among that input's micro-batches."""


@dataclass(frozen=True)
class Voter:
    """A deployed network, and the function that scores micro-batches with it."""

    score: Classify
    network: Any
    settings: Callable[[torch.device], AbstractContextManager[Any]] = nullcontext
    """Returns the context that each thread enters, since PyTorch keeps gradient mode and autocast per thread."""


def count_votes(
    voters: Sequence[Voter],
    draw: Draw,
    work: Work,
    *,
    inputs: int,
    edges: Sequence[int],
    num_classes: int,
    micro_batch: int,
    batch: int,
) -> Tensor:
    """Return the votes of `inputs` inputs by stage, int64 [inputs, stages, classes + 1], on the device of `work`.

    Stage i consists of each input's noise samples edges[i] to edges[i+1] - 1. The last column counts noise samples with
    NaN scores. Each of the `voters` runs in its own thread. About `batch` noisy samples are in memory at once.
    """
    device, stages, columns = work[0].device, len(edges) - 1, num_classes + 1
    boundaries = torch.tensor(edges, device=device)
    slots = torch.arange(micro_batch, device=device)
    voters = voters[: max(1, batch // micro_batch)]
    per_pass = max(1, batch // micro_batch // len(voters))

    def count_passes(voter: Voter, passes: Iterator[Work]) -> Tensor:
        # Two extra rows count the samples outside all stages, which are in a micro-batch only to fill it.
        votes = torch.zeros(inputs * (stages + 2) * columns, dtype=torch.int64, device=device)

        def tally(scores: Tensor, places: Tensor) -> None:
            winners = winning_classes(scores, nan=num_classes)
            votes.index_add_(0, (places + winners).flatten(), torch.ones_like(winners).flatten())

        with voter.settings(device):
            consensus = isinstance(voter.network, Ensemble) and voter.network.consensus is not None
            gathering = Gathering(voter.network, micro_batch, tally, device) if consensus else None
            for image, block in passes:
                samples = block.unsqueeze(1) * micro_batch + slots
                noisy = draw(image, samples)
                row = image.unsqueeze(1) * (stages + 2) + torch.bucketize(samples, boundaries, right=True)
                if gathering:
                    gathering.add(noisy, row * columns)
                else:  # clone: a model may reuse its output buffer
                    tally(torch.stack([voter.score(part).clone() for part in noisy]), row * columns)
            if gathering:
                gathering.finish()
        return votes

    passes = zip(*(torch.split(part, per_pass) for part in work), strict=True)
    votes = torch.stack(share_out(passes, [partial(count_passes, voter) for voter in voters])).sum(dim=0)
    return votes.view(inputs, stages + 2, columns)[:, 1:-1]


def count_within_memory(
    voters: Sequence[Voter], draw: Draw, work: Work, *, micro_batch: int, batch: int, **options: Any
) -> Tensor:
    """Count votes, halving the batch while the device runs out of memory; votes do not depend on the batch size."""
    while True:
        try:
            return count_votes(voters, draw, work, micro_batch=micro_batch, batch=batch, **options)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if batch <= micro_batch:
                text = f"The device has no memory for {micro_batch:,} noisy inputs at once"
                raise SmoothcertError(f"{text}; choose a smaller `micro_batch`.") from error
        batch = max(micro_batch, batch // 2)
        if work[0].is_cuda:
            torch.cuda.empty_cache()


def all_work(count: int, edges: Sequence[int], micro_batch: int) -> Work:
    """Return, for `count` inputs, all micro-batches that contain samples between the first and the last edge."""
    first = edges[0] // micro_batch
    blocks = -(-edges[-1] // micro_batch) - first
    work = torch.arange(count * blocks)
    return work // blocks, first + work % blocks


def winning_classes(scores: Tensor, nan: int) -> Tensor:
    """Return the class of each row of scores, or `nan` if the row contains NaN."""
    return scores.argmax(dim=-1).masked_fill(scores.isnan().any(dim=-1), nan)


def default_micro_batch(numel: int, device: torch.device) -> int:
    """Return the default micro-batch size for inputs of `numel` values.

    The size is chosen to fit a CPU's caches or to fill a GPU. The rule is fixed, so that the certified function does
    not depend on the state of the machine. GPU sizes divide 101,120, so that padding the usual 100 + 100,000 samples to
    whole micro-batches adds at most about 1 %.
    """
    if device.type == "cpu":
        size, most = 256, 1 << 20
    else:
        size, most = 10_112 if numel <= 1024 else 2_528, 1 << 27  # small inputs need more to fill a GPU
    while size > 4 and size * numel > most:
        size //= 2
    return size


def default_batch(micro_batch: int, device: torch.device, voters: int) -> int:
    """Return the default number of noisy samples in memory at once."""
    return voters * micro_batch if device.type == "cpu" else 8 * micro_batch


def samples_at_once(device: torch.device) -> int:
    """Return the number of samples to process before the host reads the votes: enough to hide the host's own work."""
    return torch.get_num_threads() << 10 if device.type == "cpu" else 1 << 22
