"""The gallery's content: for each data set its sheet of images, for each run what it says of them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from smoothcert.errors import SmoothcertError
from smoothcert.report.page.gallery import KINDS, Picks, Pictures, check_belongs, choose, make_sheet, pool, room_for
from smoothcert.report.page.votes import Votes
from smoothcert.report.sources import Run

Json = dict[str, Any]
Load = Callable[[str], Pictures]
"""Finds the test images of a data set; raises SmoothcertError where they are not to be had."""

_BUDGET = 320_000  # bytes of pictures in a page
_CLASSES = 5  # whose votes are shown


def gallery(runs: Sequence[Run], votes: Sequence[Votes | None], load: Load | None) -> Json:
    """Return the sheets, each run's picks, and why a data set has no images."""
    found: Json = {"kinds": list(KINDS), "sheets": [], "runs": [None] * len(runs), "missing": []}
    names = list(dict.fromkeys(run.entry.dataset for run in runs if run.entry.dataset))
    if len(names) < len({run.entry.dataset for run in runs}):
        found["missing"].append("Some results do not say which data set they are of.")
    for name in names:
        try:
            if load is None:
                raise SmoothcertError("the page was made without images")
            pictures = load(name)
            members = [position for position, run in enumerate(runs) if run.entry.dataset == name]
            for position in members:
                check_belongs(runs[position].entry.results, pictures)
        except SmoothcertError as error:
            found["missing"].append(f"No images of {name}: {str(error).rstrip('.')}.")
            continue
        _add(found, name, members, runs, votes, pictures, _BUDGET // len(names))
    return found


def _add(
    found: Json,
    name: str,
    members: Sequence[int],
    runs: Sequence[Run],
    votes: Sequence[Votes | None],
    pictures: Pictures,
    budget: int,
) -> None:
    results = [runs[position].entry.results for position in members]
    room = room_for(pictures, results[0].idx[:16], budget)
    chosen = choose(results, room)
    indices = pool(results, chosen)
    if not indices:
        return
    sheet = make_sheet(indices, pictures)
    place = {index: position for position, index in enumerate(indices)}
    for position, picks in zip(members, chosen, strict=True):
        found["runs"][position] = _picks(runs[position], votes[position], picks, place)
    found["sheets"].append(
        {
            "dataset": name,
            "classes": list(pictures.classes),
            "indices": list(indices),
            "labels": [int(label) for label in pictures.labels[np.asarray(indices)]],
            "size": [sheet.width, sheet.height],
            "shrink": sheet.shrink,
            "png": "data:image/png;base64," + base64.b64encode(sheet.png).decode(),
            "verdicts": {position: _verdicts(runs[position], indices) for position in members},
        }
    )


def _picks(run: Run, votes: Votes | None, picks: Picks, place: dict[int, int]) -> Json:
    results = run.entry.results
    return {
        kind: [
            {
                "image": place[int(results.idx[row])],
                "predict": int(results.predict[row]),
                "radius": float(results.radius[row]),
                "votes": votes[row][:_CLASSES] if votes else None,
                "cast": sum(count for _, count in votes[row]) if votes else None,
            }
            for row in rows
        ]
        for kind, rows in picks.items()
    }


def _verdicts(run: Run, indices: Sequence[int]) -> Json:
    """Return the radius and the class that a run gives each image, None where it did not see it."""
    results = run.entry.results
    row = {int(index): position for position, index in enumerate(results.idx)}
    rows = [row.get(index) for index in indices]
    return {
        "radius": [None if row is None else round(float(results.radius[row]), 3) for row in rows],
        "predict": [None if row is None else int(results.predict[row]) for row in rows],
    }
