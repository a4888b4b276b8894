"""Rows of results files: predictions, certificates, and the text format of their fields.

A results file `name.tsv` has the columns idx, label, predict, radius (for certificates only), correct and time. Two
files lie beside it: `name.counts.tsv` with the class counts behind every row, and `name.json` with the settings (see
`sidecar`).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

R = TypeVar("R", bound="ImageRow")
_LONGEST_TIME = 1e12  # seconds
COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")


@dataclass(frozen=True)
class ImageRow:
    """The result of one image: a line of the results file, and a line of the counts file with the votes behind it."""

    columns: ClassVar[tuple[str, ...]]
    count_columns: ClassVar[tuple[str, ...]]

    idx: int
    label: int
    predict: int

    @property
    def correct(self) -> int:
        """1 if the predicted or certified class is the label, else 0."""
        return int(self.predict == self.label)

    def row(self) -> str:
        """Format the line of the results file, with floats in full precision."""
        values = vars(self)
        values = {**values, "correct": self.correct, "time": timedelta(seconds=values["seconds"])}
        return format_row(*(values[column] for column in self.columns))

    def count_row(self) -> str:
        """Format the line of the counts file."""
        return format_row(self.idx, *(pack_votes(getattr(self, stage)) for stage in self.count_columns[1:]))


@dataclass(frozen=True)
class Prediction(ImageRow):
    """The smoothed prediction for one image; `predict` is -1 if the classifier abstained."""

    columns: ClassVar[tuple[str, ...]] = ("idx", "label", "predict", "correct", "time")
    count_columns: ClassVar[tuple[str, ...]] = ("idx", "votes")

    seconds: float
    votes: Sequence[int]


@dataclass(frozen=True)
class Record(ImageRow):
    """The certificate of one image; `predict` is -1 and `radius` is 0 if the classifier abstained."""

    columns: ClassVar[tuple[str, ...]] = COLUMNS
    count_columns: ClassVar[tuple[str, ...]] = ("idx", "selection", "estimation")

    radius: float
    seconds: float
    selection: Sequence[int]
    estimation: Sequence[int]


@dataclass(frozen=True)
class Results:
    """The columns of a results file, with one entry per image.

    Attributes:
        name: File name without extension.
        idx: Index of each image in its dataset.
        label: True class.
        predict: Certified class, or -1 if the classifier abstained.
        radius: Certified radius, 0 if the classifier abstained.
        correct: True where `predict` equals `label`.
        seconds: Time spent on each image.
        about: Content of the JSON sidecar, empty if there is none.
    """

    name: str
    idx: NDArray[np.int64]
    label: NDArray[np.int64]
    predict: NDArray[np.int64]
    radius: NDArray[np.float64]
    correct: NDArray[np.bool_]
    seconds: NDArray[np.float64]
    about: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.idx)


def format_row(*fields: object) -> str:
    """Join fields into a line of a TSV file."""
    return "\t".join(map(str, fields)) + "\n"


def complete_lines(text: str) -> list[str]:
    r"""Split text into lines, and drop an incomplete last line, which a killed process may leave.

    >>> complete_lines("0\t1\n1\t")
    ['0\t1\n']
    """
    return [line + "\n" for line in text.split("\n")[:-1]]


def parse_seconds(text: str) -> float:
    """Parse a time as seconds or as [days,] h:mm:ss, the two forms in published results files.

    >>> parse_seconds("0:00:14.2"), parse_seconds("8.5"), parse_seconds("1 day, 0:00:01")
    (14.2, 8.5, 86401.0)
    """
    match = re.fullmatch(r"(?:(\d+) days?, )?(\d+):(\d+):(\d+(?:\.\d*)?)", text.strip())
    if match:
        days, hours, minutes, seconds = match.groups(default="0")
        value = 86400.0 * int(days) + 3600 * int(hours) + 60 * int(minutes) + float(seconds)
    else:
        value = float(text)
    if not 0 <= value <= _LONGEST_TIME:  # also rejects NaN
        raise ValueError(f"expected a time, but got {text!r}")
    return value


def parse_record(kind: type[R], row: str, count_row: str, num_classes: int) -> R:
    r"""Parse a line of a results file and the matching line of its counts file into a record.

    >>> record = Record(7, 1, 1, 0.5, 2.0, [0, 10], [2, 98])
    >>> parse_record(Record, record.row(), record.count_row(), 2) == record
    True
    """
    texts = dict(zip(kind.columns, row.rstrip("\n").split("\t"), strict=True))
    _, *votes = zip(kind.count_columns, count_row.rstrip("\n").split("\t"), strict=True)
    values: dict[str, Any] = {stage: unpack_votes(text, num_classes).tolist() for stage, text in votes}
    values["seconds"] = parse_seconds(texts["time"])
    for column in dataclasses.fields(kind):
        if column.name in texts:
            values[column.name] = (float if column.type == "float" else int)(texts[column.name])
    return kind(**values)


def pack_votes(counts: Sequence[int]) -> str:
    """Format class counts as `class:count`, most votes first, omitting classes without votes.

    >>> pack_votes([1, 0, 5]), unpack_votes("2:5 0:1", 3).tolist()
    ('2:5 0:1', [1, 0, 5])
    """
    present = sorted(((count, -label) for label, count in enumerate(counts) if count), reverse=True)
    return " ".join(f"{-label}:{count}" for count, label in present)


def unpack_votes(text: str, num_classes: int) -> NDArray[np.int64]:
    """Parse class counts in the format of `pack_votes`."""
    votes = np.zeros(num_classes, dtype=np.int64)
    for pair in text.split():
        label, count = map(int, pair.split(":"))
        if min(label, count) < 0:
            raise ValueError(f"expected a class and its votes, but got {pair!r}")
        votes[label] = count
    return votes
