"""Check that a model scores each input of a batch independently; otherwise the votes prove nothing.

A model passes if it returns the same scores for an input alone or in a batch with other inputs, at any position in the
batch, and in every call. Differences are allowed only if they are random and independent between the inputs of a batch:
then the certificate holds for a randomized classifier.

The check compares only batches of the same size, because kernels round differently for other sizes. Unless the model
needs a fixed size, the batches are small, so that the check costs little even on a GPU.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from smoothcert.errors import Notice, UsageError
from smoothcert.smoothing.counting import Classify, winning_classes
from smoothcert.smoothing.score_margins import ROUNDING, changed_for_good, overdispersed, same_margins

_ROWS, _RANDOMIZED_ROWS, _FEW_ROWS = 224, 32, 12  # batch sizes of the check
_NOISY = 8  # noisy copies that are scored alone
_REPEATED, _RANDOMIZED = 128, 448  # inputs to score for a model that may be random
_GAP = 200_000  # mean number of votes between two checks
_FROM_CALL_TO_CALL = "from call to call for the whole batch, as with a shared dropout mask or an internal state"
_WITH_OTHERS = "with the rest of the batch, as for BatchNorm in training mode or activations quantized per batch"
_CHANGING = (
    "The model scored the same input differently before and after the votes: if the model is random, the certificate "
    "holds for the random model; if it keeps a state, its votes prove nothing."
)
_Place = tuple[Tensor, int]  # a batch, and the position of an input in it


class CheckSchedule:
    """Random schedule of later checks, on average every 200,000 votes, or every 200 micro-batches if that is more."""

    def __init__(self) -> None:
        self._random, self._votes_left = random.Random(0), 0.0

    def draw(self, micro_batch: int) -> None:
        """Choose the moment of the next check at random."""
        self._votes_left = self._random.uniform(0, 2 * max(_GAP, 200 * micro_batch))

    def due(self, votes: int) -> bool:
        """Count down `votes` votes, and return True if a check is due during them."""
        self._votes_left -= votes
        return self._votes_left < 0


class IndependenceCheck:
    """Comparison of a model's scores for the same inputs, before and after votes are counted.

    `draw` returns a given number of noisy copies of `clean`, an input whose votes are counted. With `fixed_shape`, all
    batches have the size `micro_batch`. A `thorough` check also compares each input's scores in a batch of
    its copies with its scores in a mixed batch.
    """

    def __init__(
        self,
        classify: Classify,
        clean: Tensor,
        draw: Callable[[int], Tensor],
        micro_batch: int,
        *,
        precision: str,
        fixed_shape: bool,
        thorough: bool,
    ) -> None:
        self._classify, self._precision, self._thorough, self._seed = classify, precision, thorough, 0
        self._memory = dict[tuple[int, bool], Tensor]()  # two buffers for each number of inputs
        if not fixed_shape and micro_batch > (_FEW_ROWS if thorough else _ROWS):
            try:
                self._call(draw(_FEW_ROWS))
            except Exception:  # a model that only accepts whole micro-batches may raise anything
                fixed_shape = True
        self._rows, self._few, self._some = (
            micro_batch if fixed_shape else min(micro_batch, most) for most in (_ROWS, _FEW_ROWS, _RANDOMIZED_ROWS)
        )
        self._noisy = draw(self._rows)
        self._others = _other_inputs(clean.to(self._noisy.dtype), self._noisy[0])
        self._alone = torch.full((len(self._others),), -1)  # classes of `_others` when scored alone; -1 if unknown
        self._history = list[tuple[Tensor, Tensor]]()  # earlier batches with their scores
        self._randomized = False

    def before_votes(self) -> None:
        """Score noisy copies, and raise if a thorough check finds that votes are not independent."""
        if self._thorough and self._rows > 1:
            self._compare_alone()
        if not self._randomized:
            self._scores = self._call(self._noisy)
            self._history.append((self._noisy, self._scores))

    def after_votes(self) -> None:
        """Score noisy copies again, and raise if votes are not independent.

        A third of the copies are scored at other positions in a new batch, and one copy is scored alone.
        """
        if self._rows == 1:
            if not self._all_same([self._scores, self._call(self._noisy)]):
                warnings.warn(_CHANGING, Notice, stacklevel=2)
            return
        if self._randomized:
            return
        # A companion of a different class is most likely to reveal that scores depend on other inputs.
        usual = self._scores.argmax(dim=1).mode().values
        companion = self._others[int((self._alone != usual).int().argmax())]
        kept = torch.arange(0, self._rows, 3)
        places = self._rows - 1 - kept
        batch = _copies(companion, self._rows)
        batch[places] = self._noisy[kept]
        scores = self._call(batch)[places]
        for i in self._differing(self._scores[kept], scores):
            self._diagnose((self._noisy, int(kept[i])), (batch, int(places[i])))
            return
        # If a few copies decide the scores of all rows, both batches may contain them; a batch of one input does not.
        alone = _copies(self._noisy[0], self._rows)
        for i in self._differing(self._scores[:1].expand_as(self._scores), self._call(alone)):
            self._diagnose((self._noisy, 0), (alone, i))

    def same_scores(self, other: Classify) -> bool:
        """Return True if another function scores noisy copies exactly as the model does."""
        if self._randomized:
            return False
        some = self._noisy[: self._few]
        return torch.allclose(self._call(some), self._call(some, classify=other), rtol=0, atol=0, equal_nan=True)

    def _compare_alone(self) -> None:
        inputs = torch.cat([self._noisy[:_NOISY], self._others])
        batches = -(-len(inputs) // self._few)
        parts = (torch.arange(batches * self._few).flip(0) % len(inputs)).view(batches, -1)
        mixed = [self._call(inputs[part]) for part in parts]  # first, so that a model that caches scores is revealed
        for one in inputs:
            copies = _copies(one, self._few)
            scores = self._call(copies)
            for i in self._differing(scores[:1].expand_as(scores), scores):
                self._diagnose((copies, 0), (copies, i))
            if self._randomized:
                return
            self._history.append((one.expand_as(copies), scores))
        expected = torch.stack([scores[0] for _, scores in self._history])
        for part, scores in zip(parts, mixed, strict=True):
            for i in self._differing(expected[part], scores):
                self._diagnose((_copies(inputs[part[i]], self._few), 0), (inputs[part], i))
                return
        self._alone = expected[-len(self._others) :].argmax(dim=1)

    def _differing(self, first: Tensor, second: Tensor) -> list[int]:
        """Return [row] for the first row with different winners, or scores that differ beyond rounding; else []."""
        same = self._same(first, second) & (winning_classes(first, nan=-1) == winning_classes(second, nan=-1))
        return (~same).nonzero().flatten()[:1].tolist()

    def _diagnose(self, first: _Place, second: _Place) -> None:
        """Raise unless an input's scores in two places differ only at random, and independently of other inputs."""
        copies = _copies(first[0][first[1]], self._some)
        calls = list[Tensor]()
        for i in range(max(4, _REPEATED // self._some)):
            self._call(_copies(self._others[i % len(self._others)], self._some))  # changes the model's state, if any
            calls.append(self._call(copies))
        alike = all(self._all_same([scores[:1].expand_as(scores), scores]) for scores in calls)
        repeatable = self._all_same(calls)
        if alike and not repeatable:
            raise _dependent(_FROM_CALL_TO_CALL)
        if repeatable and not alike:
            raise _dependent("with its position in the batch")
        if repeatable and all(self._differ_again(first, second) for _ in range(3)):  # not just by chance
            raise _dependent(_WITH_OTHERS)
        if repeatable and self._changed_for_good():
            raise _dependent(_FROM_CALL_TO_CALL)
        self._check_randomized()
        self._randomized = True

    def _differ_again(self, first: _Place, second: _Place) -> bool:
        scores = [self._call(batch)[place : place + 1] for batch, place in (first, second)]
        return not self._all_same(scores)

    def _changed_for_good(self) -> bool:
        """Return True if chance cannot explain how often earlier scores differ from two later calls that agree."""
        changed, total = 0, 0
        for batch, before in self._history:
            now, again = self._call(batch), self._call(batch)
            settled = self._same(now, again)
            differs = ~self._same(before, now)
            changed, total = changed + int((settled & differs).sum()), total + int((~settled | differs).sum())
        return changed_for_good(changed, total)

    def _all_same(self, scores: list[Tensor]) -> bool:
        return all(bool(self._same(scores[0], each).all()) for each in scores[1:])

    def _check_randomized(self) -> None:
        """Raise if the votes of a random model depend on other inputs, or vary together from call to call."""
        rest = self._noisy[: self._some // 2]
        kept = self._noisy[len(rest) : self._some]
        batches = [torch.cat([kept, rest]), *(torch.cat([kept, _copies(one, len(rest))]) for one in self._others)]
        repeats = range(max(3, 48 // len(kept)))  # so many that independent random votes rarely all agree
        plain, moved = ([self._call(batches[i], seed=0)[: len(kept)] for _ in repeats] for i in (0, 1))
        if self._all_same(plain) and self._all_same(moved) and not self._all_same([plain[0], moved[0]]):
            raise _dependent(_WITH_OTHERS)
        rounds = -(-_RANDOMIZED // (self._some * len(batches)))
        calls = [[self._call(batch)[: len(kept)].argmax(dim=1) for batch in batches] for _ in range(rounds)]
        winners = torch.stack([torch.stack(each) for each in calls])
        votes = (winners == winners.flatten().mode().values).sum(dim=2).double().numpy()
        if overdispersed(votes.sum(axis=0), rounds * len(kept)):
            raise _dependent(_WITH_OTHERS)
        if overdispersed(votes.flatten(), len(kept)):
            raise _dependent("from call to call for the whole batch, as with a shared dropout mask")

    def _call(self, batch: Tensor, seed: int | None = None, classify: Classify | None = None) -> Tensor:
        """Return the scores of a batch, with freshly seeded random numbers, as float64 on the CPU."""
        self._seed += 1
        with _seeded(self._seed if seed is None else seed, batch.device):
            # Models may write into inputs. Reusing memory reveals models that cache scores by address; alternating
            # between two buffers reveals models whose scores depend on the previous inputs.
            inputs = self._memory.setdefault((len(batch), self._seed % 2 == 0), torch.empty_like(batch)).copy_(batch)
            scores = (classify or self._classify)(inputs)
            if scores.dtype in (torch.float16, torch.bfloat16):
                self._precision = "bf16"
            return scores.cpu().to(torch.float64, copy=True)  # models may return the same memory again

    def _same(self, first: Tensor, second: Tensor) -> Tensor:
        return same_margins(first, second, *ROUNDING[self._precision])


def _other_inputs(clean: Tensor, noisy: Tensor) -> Tensor:
    """Return inputs that a model is likely to classify differently from `clean`."""
    scale = clean.abs().max().clamp(min=float((noisy - clean).abs().max()))
    far = clean + 4 * (noisy - clean)
    mirrored = noisy.flatten().flip(0).view_as(noisy)
    return torch.stack([3 * noisy - scale, -noisy, 16 * scale - noisy, mirrored, far, -far])


def _copies(one: Tensor, count: int) -> Tensor:
    return one.expand(count, *one.shape).clone()


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the global random generators, and restore their states on exit."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 - models may use the legacy generator
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.default_generator.manual_seed(seed)
            if device.type == "cuda":
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)  # only this device: `fork_rng` does not restore others
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


def _dependent(how: str) -> UsageError:
    return UsageError(
        f"The model's scores of an input change {how}, so votes are not independent and prove nothing. Put the model "
        "into eval mode, or choose `micro_batch=1`."
    )
