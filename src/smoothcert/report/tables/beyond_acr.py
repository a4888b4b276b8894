"""Tables beyond ACR: the best row per radius, ACR at fewer votes, training cost, and the distribution of p_A."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from smoothcert.report.groups import grouped
from smoothcert.report.tables.formats import Annex, Cell, Sheet, dataset_title, without_single_dataset
from smoothcert.report.tables.table import Table
from smoothcert.report.tables.winners import best_by_radius
from smoothcert.results.naming import counts_path
from smoothcert.results.reader import read_vote_table
from smoothcert.statistics.bounds import Floats
from smoothcert.statistics.evaluation import expected_radii, label_shares, share_up_to
from smoothcert.statistics.noise import noise_of

if TYPE_CHECKING:
    from smoothcert.report.sources import Run

_FEWER = (100, 1000, 10_000)  # votes for which the expected ACR is computed
_GRID = np.linspace(0, 1, 101)


def best_annex(table: Table) -> Annex:
    """Return a table of the best method and noise level at each radius, per dataset, protocol and set of images."""
    titles = ["dataset", "radius", "certified", "sigma", "method", "ACR"]
    lines, values = [], list[dict[str, Any]]()
    for rows in grouped(table.rows, lambda row: (row.entry.dataset, row.entry.protocol, row.entry.image_set)):
        group = []
        for best in best_by_radius(rows, table.radii):
            entry = best.first.entry
            texts = [dataset_title(entry.dataset), f"{best.radius:.2f}", f"{best.accuracy:.1f}"]
            texts += [f"{entry.sigma or 0:.2f}", entry.title, f"{best.first.acr.value:.3f}"]
            group.append([Cell(text) for text in texts])
            about = {"dataset": entry.dataset, "sigma": entry.sigma, "title": entry.title}
            values.append({"best_at": best.radius, "certified_accuracy": best.accuracy, **about})
        lines.append(group)
    return Annex(without_single_dataset(Sheet(titles, lines, note="Best row per radius:"), table), values)


def fewer_votes_annex(runs: Sequence[Run], table: Table) -> Annex:
    """Return a table of training costs and, where the stored votes allow it, expected ACR at fewer votes."""
    run_of = {id(run.entry): run for run in runs}
    titles = ["dataset", "sigma", "method", "cost", *(f"n = {fewer:,}" for fewer in _FEWER), "as certified"]
    lines, values = list[list[Cell]](), list[dict[str, Any]]()
    for row in table.rows:
        entry, found = row.entry, _acr_at_fewer(run_of[id(row.entry)])
        texts = [dataset_title(entry.dataset), f"{entry.sigma or 0:.2f}", entry.title]
        texts += [f"{entry.cost:,.0f}" if entry.cost else ""]
        texts += [f"{found[fewer]:.3f}" if fewer in found else "" for fewer in _FEWER]
        lines.append([Cell(text) for text in [*texts, f"{row.acr.value:.3f}"]])
        values.append({"title": entry.title, "sigma": entry.sigma, "cost": entry.cost, "acr_at_fewer_votes": found})
    note = "Training cost per image (in units of a forward pass), and ACR at n votes, estimated from the stored votes:"
    return Annex(without_single_dataset(Sheet(titles, [lines], note=note), table), values)


def _acr_at_fewer(run: Run) -> dict[int, float]:
    """Return the expected ACR at each number of votes in `_FEWER` that is less than n.

    The result is empty unless the run used the standard CERTIFY with a fixed n and stored its votes.
    """
    settings, results = run.entry.settings, run.entry.results
    unusual = {"stop", "bound", "top_k", "cascade"} & set(settings)
    if unusual or not {"n", "alpha", "sigma"} <= set(settings) or not counts_path(run.path).is_file():
        return {}
    selection, estimation = _votes(run)
    chosen, noise = selection.argmax(axis=1), noise_of(settings)
    if settings.get("norm", noise.norm) != noise.norm:
        return {}
    successes = np.take_along_axis(estimation, chosen[:, None], axis=1)[:, 0]
    n, right = int(settings["n"]), chosen == results.label
    return {
        fewer: float(np.mean(expected_radii(successes, n, fewer, noise, float(settings["alpha"])) * right))
        for fewer in _FEWER
        if fewer < n
    }


def vote_shares_of(run: Run) -> Floats | None:
    """Return, for each image, the share of votes for its label; None if no votes are stored."""
    return label_shares(_votes(run)[1], run.entry.results.label) if counts_path(run.path).is_file() else None


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


def _votes(run: Run) -> tuple[Any, Any]:
    """Return the votes [images, classes] of selection and estimation, in the order of the run's rows."""
    table = read_vote_table(run.path)
    place = {int(idx): row for row, idx in enumerate(table.idx)}
    rows = [place[idx] for idx in run.entry.results.idx.tolist()]
    selection, estimation = table.dense(0, len(table), table.classes)
    return selection[rows], estimation[rows]
