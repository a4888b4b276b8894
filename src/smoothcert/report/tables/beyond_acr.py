"""Tables beyond ACR: the best row per radius, ACR at fewer votes, training cost, and the distribution of p_A."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smoothcert.report.tables.formats import Annex, Cell, Sheet, dataset_title
from smoothcert.report.tables.table import Table, TableRow
from smoothcert.report.tables.winners import best_by_radius
from smoothcert.results.naming import counts_path
from smoothcert.results.reader import read_vote_table
from smoothcert.statistics.bounds import Floats
from smoothcert.statistics.evaluation import expected_radii, label_shares, share_up_to
from smoothcert.statistics.noise import noise_of

if TYPE_CHECKING:
    from smoothcert.report.sources import Run

FEWER = (100, 1000, 10_000)
"""Numbers of votes for which the expected ACR is computed."""
_GRID = np.linspace(0, 1, 101)


def best_annex(table: Table) -> Annex:
    """Return a table of the best method and noise level at each radius, per dataset, protocol and set of images."""
    groups: dict[Any, list[TableRow]] = {}
    for row in table.rows:
        groups.setdefault((row.entry.dataset, row.entry.protocol, row.entry.image_set), []).append(row)
    titles = [*(["dataset"] if table.several_sets else []), "radius", "certified", "sigma", "method", "ACR"]
    lines, values = [], list[dict[str, Any]]()
    for rows in groups.values():
        group = []
        for best in best_by_radius(rows, table.radii):
            entry = best.first.entry
            texts = [dataset_title(entry.dataset)] if table.several_sets else []
            texts += [f"{best.radius:.2f}", f"{best.accuracy:.1f}", f"{entry.sigma or 0:.2f}", entry.title]
            group.append([Cell(text) for text in [*texts, f"{best.first.acr.value:.3f}"]])
            about = {"dataset": entry.dataset, "sigma": entry.sigma, "title": entry.title}
            values.append({"best_at": best.radius, "certified_accuracy": best.accuracy, **about})
        lines.append(group)
    return Annex(Sheet(titles, lines, note="Best row per radius:"), values)


def fewer_votes_annex(runs: Sequence[Run], table: Table) -> Annex:
    """Return a table of training costs and, where `acr_at_fewer` can compute it, expected ACR at fewer votes."""
    order = {id(row.entry): place for place, row in enumerate(table.rows)}
    titles = [
        *(["dataset"] if table.several_sets else []),
        "sigma",
        "method",
        "cost",
        *(f"n = {fewer:,}" for fewer in FEWER),
        "as certified",
    ]
    lines, values = list[list[Cell]](), list[dict[str, Any]]()
    for run in sorted(runs, key=lambda run: order[id(run.entry)]):
        entry, found = run.entry, acr_at_fewer(run)
        radii = np.where(entry.results.correct, entry.results.radius, 0.0)
        texts = [dataset_title(entry.dataset)] if table.several_sets else []
        texts += [f"{entry.sigma or 0:.2f}", entry.title, f"{entry.cost:,.0f}" if entry.cost else ""]
        texts += [f"{found[fewer]:.3f}" if fewer in found else "" for fewer in FEWER]
        lines.append([Cell(text) for text in [*texts, f"{radii.mean():.3f}"]])
        values.append({"title": entry.title, "sigma": entry.sigma, "cost": entry.cost, "acr_at_fewer_votes": found})
    note = "Training cost per image (in units of a forward pass), and ACR at n votes, estimated from the stored votes:"
    return Annex(Sheet(titles, [lines], note=note), values)


def acr_at_fewer(run: Run) -> dict[int, float]:
    """Return the expected ACR at each number of votes in `FEWER` that is less than n.

    The result is empty unless the run used the standard CERTIFY with a fixed n and stored its votes.
    """
    settings, results = run.entry.settings, run.entry.results
    unusual = {"stop", "bound", "top_k", "cascade"} & set(settings)
    if unusual or not {"n", "alpha", "sigma"} <= set(settings) or not counts_path(run.path).is_file():
        return {}
    selection, estimation = _votes(run.path, run)
    chosen, noise = selection.argmax(axis=1), noise_of(settings)
    if settings.get("norm", noise.norm) != noise.norm:
        return {}
    successes = np.take_along_axis(estimation, chosen[:, None], axis=1)[:, 0]
    n, right = int(settings["n"]), chosen == results.label
    return {
        fewer: float(np.mean(expected_radii(successes, n, fewer, noise, float(settings["alpha"])) * right))
        for fewer in FEWER
        if fewer < n
    }


def vote_shares_of(run: Run) -> Floats | None:
    """Return, for each image, the share of votes for its label; None if no votes are stored."""
    return label_shares(_votes(run.path, run)[1], run.entry.results.label) if counts_path(run.path).is_file() else None


def distribution_csv(runs: Sequence[Run]) -> str:
    """Return the empirical distribution of p_A for each run as CSV: the share of images whose p_A is at most p."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["dataset", "sigma", "method", "p", "share"])
    for run in runs:
        shares, entry = vote_shares_of(run), run.entry
        if shares is not None:
            for p, share in zip(_GRID, share_up_to(shares, _GRID), strict=True):
                writer.writerow([entry.dataset or "", entry.sigma or "", entry.title, f"{p:.2f}", f"{share:.6g}"])
    return out.getvalue()


def _votes(path: Path, run: Run) -> tuple[Any, Any]:
    """Return the votes [images, classes] of selection and estimation, in the order of the run's rows."""
    table = read_vote_table(path)
    place = {int(idx): row for row, idx in enumerate(table.idx)}
    rows = [place[idx] for idx in run.entry.results.idx.tolist()]
    selection, estimation = table.dense(0, len(table), table.classes)
    return selection[rows], estimation[rows]
