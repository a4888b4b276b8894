"""Image gallery of the report page: one PNG of test images (a sheet) per dataset, and each run's results and votes."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from smoothcert.errors import SmoothcertError
from smoothcert.report.page.image_choice import KINDS, Picks, choose, shown_images
from smoothcert.report.page.image_sheet import Pictures, check_same_dataset, make_sheet, room_for
from smoothcert.report.page.votes import Votes
from smoothcert.report.sources import Run
from smoothcert.report.tables.formats import dataset_title
from smoothcert.runtime.typed_files import Json

Load = Callable[[str], Pictures]
"""Returns the test images of a dataset; raises SmoothcertError if they are not available."""

_BUDGET = 320_000  # bytes for the image sheets of all datasets on a page
_CLASSES = 5  # classes shown per image: the ones with the most votes


def build_gallery(runs: Sequence[Run], votes: Sequence[Votes | None], load: Load | None) -> Json:
    """Return the image sheets, the images that each run shows, and the reasons for missing images by dataset."""
    content: Json = {"kinds": list(KINDS), "sheets": [], "runs": [None] * len(runs), "missing": []}
    names = list(dict.fromkeys(run.entry.dataset for run in runs if run.entry.dataset))
    if any(not run.entry.dataset for run in runs):
        content["missing"].append({"dataset": None, "text": "Some results do not state their dataset."})
    for name in names:
        members = {position: run for position, run in enumerate(runs) if run.entry.dataset == name}
        try:
            if load is None:
                raise SmoothcertError("the page was made without images")
            pictures = load(name)
            for run in members.values():
                check_same_dataset(run.entry.results, pictures)
        except SmoothcertError as error:
            text = f"No images of {dataset_title(name)}: {str(error).rstrip('.')}."
            content["missing"].append({"dataset": name, "text": text})
            continue
        results = [run.entry.results for run in members.values()]
        chosen = choose(results, room_for(pictures, results[0].idx[:16], _BUDGET // len(names)))
        indices = shown_images(results, chosen)
        if not indices:
            continue
        content["sheets"].append(_sheet_json(name, indices, pictures, members))
        for (position, run), picks in zip(members.items(), chosen, strict=True):
            content["runs"][position] = _picks_json(run, votes[position], picks, indices)
    return content


def _sheet_json(name: str, indices: Sequence[int], pictures: Pictures, members: Mapping[int, Run]) -> Json:
    png, size, shrink = make_sheet(indices, pictures)
    return {
        "dataset": name,
        "classes": list(pictures.classes),
        "indices": list(indices),
        "labels": [int(label) for label in pictures.labels[np.asarray(indices)]],
        "size": size,
        "shrink": shrink,
        "png": "data:image/png;base64," + base64.b64encode(png).decode(),
        "verdicts": {position: _verdicts(run, indices) for position, run in members.items()},
    }


def _picks_json(run: Run, votes: Votes | None, picks: Picks, indices: Sequence[int]) -> Json:
    results, position = run.entry.results, {index: i for i, index in enumerate(indices)}
    return {
        kind: [
            {
                "image": position[int(results.idx[row])],
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
    """Return the run's radius and prediction for each image; None for images without a result."""
    results = run.entry.results
    row_of = {int(index): row for row, index in enumerate(results.idx)}
    rows = [row_of.get(index) for index in indices]
    down = (np.floor(results.radius * 1000 + 1e-6) / 1000).tolist()  # tolerates rounding errors of up to 1e-9
    return {
        "radius": [None if row is None else down[row] for row in rows],
        "predict": [None if row is None else int(results.predict[row]) for row in rows],
    }
