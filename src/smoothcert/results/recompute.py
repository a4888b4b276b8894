"""Compute certificates from stored looks. Does not import torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smoothcert.results.look_store import Look
from smoothcert.results.records import Record
from smoothcert.statistics.bounds import Ints
from smoothcert.statistics.certify import bound_uniforms, certify_looks
from smoothcert.statistics.look_plan import Plan
from smoothcert.statistics.noise import Noise

_AT_ONCE = 256  # images per array of looks


def certify_stored(
    indices: Sequence[int],
    labels: Sequence[int],
    looks: Sequence[Sequence[Look]],
    plan: Plan,
    noise: Noise,
    *,
    bound: str = "one-sided",
    top: int = 1,
    seed: int = 0,
) -> list[Record]:
    """Compute certificates from the stored looks of images; the first look of each image is the selection.

    With `top` > 1, the certified class is the label instead of the class with the most selection votes.
    """
    records = list[Record]()
    for first in range(0, len(indices), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        selection, counts, reached = _arrays(looks[part])
        chosen = np.asarray(labels[part]) if top > 1 else selection.argmax(axis=1)
        uniforms = bound_uniforms(seed, indices[part]) if bound == "randomised" else None
        found = certify_looks(chosen, counts, reached, plan, noise, bound, top=top, uniforms=uniforms)
        answers = found.prediction, found.radius
        rows = zip(indices[part], labels[part], looks[part], *answers, selection, counts, reached, strict=True)
        for index, label, seen, predict, radius, votes, looked, number in rows:
            last = looked[number - 1].tolist() if number else []
            seconds = sum(look.seconds for look in seen)
            records.append(Record(index, label, int(predict), float(radius), seconds, votes.tolist(), last))
    return records


def _arrays(looks: Sequence[Sequence[Look]]) -> tuple[Ints, Ints, Ints]:
    """Return the votes of the selection [images, classes] and of all later looks [images, looks, classes].

    Also return the number of each image's later looks [images].
    """
    classes = max((len(look.votes) for seen in looks for look in seen), default=1)
    reached = np.array([max(0, len(seen) - 1) for seen in looks], dtype=np.int64)
    selection = np.zeros((len(looks), classes), dtype=np.int64)
    counts = np.zeros((len(looks), max(1, reached.max(initial=0)), classes), dtype=np.int64)
    for row, seen in enumerate(looks):
        for look in seen:
            (selection[row] if look.look == 0 else counts[row, look.look - 1])[:] = look.votes
    return selection, counts, reached
