"""Read counts files into arrays, fast enough to verify every results file that is read.

A line has the fields idx, selection and estimation; the last two are `class:count` pairs separated by spaces, or empty.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from smoothcert.dataset_names import MOST_CLASSES
from smoothcert.errors import SmoothcertError, quote
from smoothcert.runtime.bounded_files import read_bytes
from smoothcert.statistics.bounds import Ints

_MANY_CLASSES, _LARGEST_TABLE = 1000, 1 << 27
_NUMBER = rb"\d{1,15}"
_VOTES = rb"(?:%s:%s(?: %s:%s)*)?" % ((_NUMBER,) * 4)
_LINES = re.compile(rb"(?:%s\t%s\t%s\n)*+" % (_NUMBER, _VOTES, _VOTES))
_SPACES = bytes.maketrans(b":\t\n", b"   ")


@dataclass(frozen=True)
class VoteTable:
    """Votes of both stages for each image, as entries in the order of the file.

    Entry i stands for `count[i]` votes for class `label[i]` in field `field[i]`. Fields 2r and 2r + 1 are the selection
    and the estimation of image `idx[r]`.
    """

    idx: Ints
    field: Ints
    label: Ints
    count: Ints
    source: Path

    def __len__(self) -> int:
        return len(self.idx)

    @property
    def classes(self) -> int:
        """Smallest number of classes that includes every class with votes, at least 1."""
        return 1 + int(self.label.max(initial=0))

    def require_classes(self, classes: int) -> None:
        """Raise if there are votes for a class that is not below `classes`."""
        beyond = np.flatnonzero(self.label >= classes)
        if len(beyond):
            line, label = self.field[beyond[0]] // 2 + 2, self.label[beyond[0]]
            raise SmoothcertError(
                f"{self.source}, line {line}: expected votes for {classes} classes, numbered from 0, but got class "
                f"{label}."
            )

    def rows_of(self, idx: Ints) -> Ints:
        """Return the row of each image, -1 for images without votes."""
        if not len(self):
            return np.full(len(idx), -1)
        order = np.argsort(self.idx, kind="stable")
        places = np.searchsorted(self.idx, idx, sorter=order)
        rows: Ints = order[np.minimum(places, len(order) - 1)]
        return np.where(self.idx[rows] == idx, rows, -1)

    def dense(self, first: int, stop: int, classes: int) -> tuple[Ints, Ints]:
        """Return the selection and estimation votes of rows `first` to `stop - 1`, each as an array [rows, classes]."""
        check_table_size(stop - first, classes, self.source)
        start, end = np.searchsorted(self.field, [2 * first, 2 * stop])
        votes = np.zeros((2 * (stop - first), classes), dtype=np.int64)
        votes[self.field[start:end] - 2 * first, self.label[start:end]] = self.count[start:end]
        return votes[0::2], votes[1::2]


def check_table_size(rows: int, classes: int, source: Path) -> None:
    """Raise if a dense array of the votes would take far more memory than their file."""
    if classes > _MANY_CLASSES and rows * classes > _LARGEST_TABLE:
        raise SmoothcertError(
            f"{source}: {rows:,} rows of {classes:,} classes exceed the limit of {_LARGEST_TABLE:,} table entries."
        )


def read_votes(source: Path) -> VoteTable:
    """Read a counts file, except its header and an incomplete last line."""
    data = read_bytes(source)
    body = data[data.find(b"\n") + 1 : data.rfind(b"\n") + 1]
    _check_lines(body, source)
    numbers = np.fromstring(body.translate(_SPACES), dtype=np.int64, sep=" ")
    text = np.frombuffer(body, dtype=np.uint8)
    is_digit = (text >= ord("0")) & (text <= ord("9"))
    ends = np.flatnonzero(is_digit[:-1] & ~is_digit[1:]) + 1  # the place after each number
    tabs, labels = np.flatnonzero(text == ord("\t")), np.flatnonzero(text[ends] == ord(":"))
    if int(numbers[labels].max(initial=0)) >= MOST_CLASSES:
        raise SmoothcertError(f"{source}: expected classes below {MOST_CLASSES:,}, but got {numbers[labels].max():,}.")
    idx = numbers[np.searchsorted(ends, tabs[0::2])]
    return VoteTable(idx, np.searchsorted(tabs, ends[labels]) - 1, numbers[labels], numbers[labels + 1], source)


def _check_lines(body: bytes, source: Path) -> None:
    matched = _LINES.match(body)
    end = matched.end() if matched else 0
    if end < len(body):
        number, line = 2 + body.count(b"\n", 0, end), body[end : body.find(b"\n", end)]
        expected = "an image's votes in both stages, as `class:count`"
        raise SmoothcertError(
            f"{source}, line {number}: expected {expected}, but got {quote(line.decode(errors='replace'))}."
        )
