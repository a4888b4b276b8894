"""Parse counts files into arrays, fast enough to verify every results file that is read.

A line has the fields idx, selection and estimation; the last two are `class:count` pairs separated by spaces, or empty.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.dataset_names import MOST_CLASSES
from smoothcert.errors import SmoothcertError, quote

Ints = NDArray[np.int64]

_COLON, _SPACE, _FIRST_TAB, _SECOND_TAB, _NEWLINE, _OTHER = range(6)
_KINDS = np.full(256, _OTHER, dtype=np.int8)
_KINDS[[*b": \t\n"]] = _COLON, _SPACE, _FIRST_TAB, _NEWLINE

# [separator before a number, separator after it, number is empty]: True where the format allows it.
_ALLOWED = np.zeros((6, 6, 2), dtype=bool)
_ALLOWED[_NEWLINE, _FIRST_TAB, 0] = True
_ALLOWED[[_FIRST_TAB, _SPACE, _SECOND_TAB], _COLON, 0] = True
_ALLOWED[_COLON, [_SPACE, _SECOND_TAB, _NEWLINE], 0] = True
_ALLOWED[_FIRST_TAB, _SECOND_TAB, 1] = _ALLOWED[_SECOND_TAB, _NEWLINE, 1] = True  # a stage without votes

_MANY_CLASSES, _LARGEST_TABLE = 1000, 1 << 27
_MOST_DIGITS = 15
_NUMBER = rb"\d{1,15}"
_VOTES = rb"(%s:%s( %s:%s)*)?" % ((_NUMBER,) * 4)
_LINE = re.compile(rb"%s\t%s\t%s" % (_NUMBER, _VOTES, _VOTES))


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
    source: Path = Path()

    def __len__(self) -> int:
        return len(self.idx)

    @property
    def classes(self) -> int:
        """Smallest number of classes that includes every class with votes, at least 1."""
        return 1 + int(self.label.max(initial=0))

    def require_classes(self, classes: int, source: Path) -> None:
        """Raise if there are votes for a class that is not below `classes`."""
        beyond = np.flatnonzero(self.label >= classes)
        if len(beyond):
            line, label = self.field[beyond[0]] // 2 + 2, self.label[beyond[0]]
            raise SmoothcertError(
                f"{source}, line {line}: expected votes for {classes} classes, numbered from 0, but got class {label}."
            )

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


def parse_votes(data: bytes, source: Path) -> VoteTable:
    """Parse a file of class counts, skipping its header and an incomplete last line."""
    body = data[data.find(b"\n") + 1 : data.rfind(b"\n") + 1]
    text = np.frombuffer(body, dtype=np.uint8)
    digits = text - np.uint8(48)  # other characters become 10 or more
    ends = np.flatnonzero(digits > 9)
    kinds = _KINDS[text[ends]]
    tabs = np.flatnonzero(kinds == _FIRST_TAB)
    kinds[tabs[1::2]] = _SECOND_TAB
    lengths = np.diff(ends, prepend=-1) - 1
    before = np.concatenate([[np.int8(_NEWLINE)], kinds[:-1]])
    wrong = ~_ALLOWED[before, kinds, (lengths == 0).astype(np.int8)] | (lengths > _MOST_DIGITS)
    if wrong.any():
        raise _invalid_line(source, body)
    numbers = digits[ends - 1].astype(np.int64)
    longer = np.flatnonzero(lengths > 1)
    for power in range(1, int(lengths.max(initial=0))):
        longer = longer[lengths[longer] > power]
        numbers[longer] += digits[ends[longer] - 1 - power] * np.int64(10**power)
    labels = np.flatnonzero(kinds == _COLON)
    if int(numbers[labels].max(initial=0)) >= MOST_CLASSES:
        raise SmoothcertError(f"{source}: expected classes below {MOST_CLASSES:,}, but got {numbers[labels].max():,}.")
    field = np.searchsorted(tabs, labels) - 1
    return VoteTable(numbers[tabs[0::2]], field, numbers[labels], numbers[labels + 1], source)


def _invalid_line(source: Path, body: bytes) -> SmoothcertError:
    number, line = next((i, line) for i, line in enumerate(body.split(b"\n"), 2) if not _LINE.fullmatch(line))
    expected = "an image's votes in both stages, as `class:count`"
    return SmoothcertError(
        f"{source}, line {number}: expected {expected}, but got {quote(line.decode(errors='replace'))}."
    )
