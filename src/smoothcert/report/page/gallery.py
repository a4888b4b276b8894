"""Which test images the page shows, and their pixels as one picture.

All runs of a data set share the images. Of many that are equally telling for a run those are taken that are so for
most runs: so a page of many runs stays small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import SmoothcertError
from smoothcert.report.page.png import encode_png
from smoothcert.results.records import Results

KINDS = ("most robust", "least robust", "wrong", "abstained")
_MOST = 8  # images of a kind and run
_LARGEST_SIDE = 64
_EXTREME = 0.02

Picks = dict[str, list[int]]
"""For each kind, the rows of a results file to show."""


@dataclass(frozen=True)
class Pictures:
    """The images of a data set: pixels by index, uint8 [images, height, width, channels], labels and class names."""

    pixels: Callable[[NDArray[np.int64]], NDArray[np.uint8]]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    sha256: str


@dataclass(frozen=True)
class Sheet:
    """The chosen images of a data set, in one column; `shrink` is how many pixels of the original make one of it."""

    indices: tuple[int, ...]
    png: bytes
    height: int
    width: int
    shrink: int


def check_belongs(results: Results, pictures: Pictures) -> None:
    """Refuse images that are not those that were certified."""
    made = results.about.get("settings", {}).get("data", {}).get("sha256")
    known = results.idx.max() < len(pictures.labels)
    if (made and made != pictures.sha256) or not known or (pictures.labels[results.idx] != results.label).any():
        raise SmoothcertError(f"the images in the data folder are not those that {results.name} was made with")


def candidates(results: Results) -> Picks:
    """Return the rows of each kind, most telling first.

    Of those that are right the 2 % with the largest and with the smallest radius, the wrong with the largest radius,
    and all abstentions.
    """
    right = np.flatnonzero(results.correct & (results.predict >= 0))
    wrong = np.flatnonzero(~results.correct & (results.predict >= 0))
    rising = right[np.argsort(results.radius[right], kind="stable")]
    few = max(_MOST, round(_EXTREME * len(results)))
    falling_wrong = wrong[np.argsort(-results.radius[wrong], kind="stable")]
    # Many images share the largest radius n noises allow: none of them is more telling than another.
    largest = results.radius[rising[-1]] if len(rising) else 0.0
    equal = int((results.radius[rising] == largest).sum())
    top = rising[::-1][: max(few, equal)]
    picked = {"most robust": top, "least robust": rising[:few], "wrong": falling_wrong[:few]}
    picked["abstained"] = np.flatnonzero(results.predict < 0)
    return {kind: [int(row) for row in rows] for kind, rows in picked.items()}


def choose(runs: Sequence[Results], room: int) -> list[Picks]:
    """Return what each run shows, as many of a kind as leave at most `room` images in all."""
    offered = [candidates(results) for results in runs]
    votes: dict[tuple[str, int], int] = {}
    for results, picks in zip(runs, offered, strict=True):
        for kind, rows in picks.items():
            for row in rows:
                votes[kind, int(results.idx[row])] = votes.get((kind, int(results.idx[row])), 0) + 1
    ranked = [
        {kind: sorted(rows, key=lambda row: -votes[kind, int(results.idx[row])]) for kind, rows in picks.items()}
        for results, picks in zip(runs, offered, strict=True)
    ]
    chosen: list[Picks] = []
    for most in range(_MOST, 0, -1):
        chosen = [{kind: rows[:most] for kind, rows in picks.items()} for picks in ranked]
        if len(pool(runs, chosen)) <= room:
            break
    return _within(runs, chosen, room)


def pool(runs: Sequence[Results], chosen: Sequence[Picks]) -> list[int]:
    """Return the indices of all images that are shown, those of most runs first."""
    shown: dict[int, int] = {}
    for results, picks in zip(runs, chosen, strict=True):
        for rows in picks.values():
            for row in rows:
                shown[int(results.idx[row])] = shown.get(int(results.idx[row]), 0) + 1
    return sorted(shown, key=lambda index: (-shown[index], index))


def _within(runs: Sequence[Results], chosen: Sequence[Picks], room: int) -> list[Picks]:
    """Drop what does not fit even when a run shows one image of a kind; sort the rest by radius."""
    kept = set(pool(runs, chosen)[:room])

    def ordered(results: Results, kind: str, rows: Sequence[int]) -> list[int]:
        sign = 1 if kind == "least robust" else -1
        shown = [row for row in rows if int(results.idx[row]) in kept]
        return sorted(shown, key=lambda row: (sign * results.radius[row], results.idx[row]))

    return [
        {kind: ordered(results, kind, rows) for kind, rows in picks.items()}
        for results, picks in zip(runs, chosen, strict=True)
    ]


def make_sheet(indices: Sequence[int], pictures: Pictures) -> Sheet:
    """Return the pixels of these images, one below the other, large ones averaged down to 64 pixels a side."""
    pixels = pictures.pixels(np.asarray(indices, dtype=np.int64))
    shrink = -(-max(pixels.shape[1:3]) // _LARGEST_SIDE)
    small = shrink_images(pixels, shrink)
    count, height, width, channels = small.shape
    return Sheet(tuple(indices), encode_png(small.reshape(count * height, width, channels)), height, width, shrink)


def shrink_images(pixels: NDArray[np.uint8], factor: int) -> NDArray[np.uint8]:
    """Average squares of factor x factor pixels; what is left over at the edges is cut off."""
    count, height, width, channels = pixels.shape
    rows, columns = height // factor, width // factor
    cut = pixels[:, : rows * factor, : columns * factor].astype(np.float64)
    squares = cut.reshape(count, rows, factor, columns, factor, channels).mean(axis=(2, 4))
    return np.asarray(squares.round(), dtype=np.uint8)


def room_for(pictures: Pictures, sample: NDArray[np.int64], budget: int) -> int:
    """Return how many images fit into a number of bytes, judged by a sample of them."""
    return max(1, budget * len(sample) // max(1, len(make_sheet([int(i) for i in sample], pictures).png)))
