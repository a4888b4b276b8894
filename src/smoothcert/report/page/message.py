"""The page's first sentences: which method wins, by how much, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from smoothcert.report.corrupted.means import summarize
from smoothcert.report.corrupted.results import CorruptedResults, corruption_groups, same_images
from smoothcert.report.sources import Run
from smoothcert.report.symbols import with_symbols
from smoothcert.report.tables.formats import dataset_title
from smoothcert.report.tables.table import Table, TableRow
from smoothcert.report.tables.winners import BestAt, Lead, best_by_radius, comparable_rows, leads_by_sigma
from smoothcert.statistics.metrics import Estimate, estimate
from smoothcert.training.passes import relative_cost

Json = dict[str, Any]
SIGMA = "\N{GREEK SMALL LETTER SIGMA}"


def dataset_messages(table: Table, runs: Sequence[Run]) -> list[Json]:
    """Return the message and the best run per radius of each dataset; runs are in the order of the table's rows."""
    positions = {id(row): position for position, row in enumerate(table.rows)}
    costs = {id(row): relative_cost(run.config) for row, run in zip(table.rows, runs, strict=True) if run.config}
    messages = []
    for dataset in dict.fromkeys(row.entry.dataset for row in table.rows):
        rows = comparable_rows(table, dataset)
        leads, best = leads_by_sigma(rows), best_by_radius(rows, table.radii)
        messages.append(
            {
                "dataset": dataset,
                "headline": _headline(leads, dataset),
                "details": [
                    *_acr_sentence(leads),
                    *_clean_sentence(leads),
                    *_radius_sentence(best),
                    *_cost_sentence(leads, costs),
                ],
                "compared": [positions[id(row)] for row in rows],
                "images": len(rows[0].entry.results),
                "best": [
                    {
                        "radius": at.radius,
                        "run": positions[id(at.first)],
                        "accuracy": f"{at.accuracy:.1f}",
                        "second": positions[id(at.second)] if at.second else None,
                        "secondAccuracy": "" if at.second_accuracy is None else f"{at.second_accuracy:.1f}",
                    }
                    for at in best
                ],
            }
        )
    return messages


def _name(row: TableRow) -> str:
    return with_symbols(row.entry.name)


def _at_sigma(sigmas: Iterable[float | None]) -> str:
    known = [f"{sigma:.2f}" for sigma in sigmas if sigma]
    return f"{SIGMA} {_listed(known)}" if known else ""


def _listed(texts: Sequence[str]) -> str:
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts)


def _headline(leads: Sequence[Lead], dataset: str | None) -> str:
    where = f" on {dataset_title(dataset)}" if dataset else ""
    if all(lead.second is None for lead in leads):
        lead = max(leads, key=lambda lead: lead.first.acr.value)
        at = _at_sigma([lead.first.entry.sigma])
        acr = f"{lead.first.acr.value:.3f}"
        return f"{_name(lead.first)} has an average certified radius of {acr}{where}{at and f' at {at}'}."
    winners = dict.fromkeys(_name(lead.first) for lead in leads)
    if len(winners) == 1:
        every = f" at every {SIGMA}" if len(leads) > 1 else ""
        level = [f" ({_name(lead.second)} is level)" for lead in leads if lead.second and not lead.significant]
        level = level if len(leads) == 1 else []
        return f"{next(iter(winners))} has the largest average certified radius{where}{every}{''.join(level)}."
    parts = [
        f"{name} at {_at_sigma(lead.first.entry.sigma for lead in leads if _name(lead.first) == name)}"
        for name in winners
    ]
    return f"The largest average certified radius{where} has {_listed(parts)}."


def _ahead(ahead: Estimate, second: str) -> str:
    """Return a paired difference with its interval, all numbers with the same digits."""
    digits = 3 if abs(ahead.value) >= 0.0095 else 4
    gap, low, high = (
        f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}") for value in (ahead.value, ahead.low, ahead.high)
    )
    return f"{gap} above {second}, 95 % interval {low} to {high}"


def _acr_sentence(leads: Sequence[Lead]) -> list[Json]:
    parts = []
    for lead in leads:
        text = f"{lead.first.acr.value:.3f}"
        if lead.second and lead.ahead:
            over = _ahead(lead.ahead, _name(lead.second))
            text += f" ({over}{'' if lead.significant else ', not significant'})"
        parts.append(f"{text}{f' at {at}' if (at := _at_sigma([lead.first.entry.sigma])) else ''}")
    paired = " Differences are paired: on the same images." if any(lead.ahead for lead in leads) else ""
    return [{"title": "ACR", "text": f"{'; '.join(parts)}.{paired}"}]


def _clean_sentence(leads: Sequence[Lead]) -> list[Json]:
    lead = max(leads, key=lambda lead: (lead.clean.accuracy[0] - lead.first.accuracy[0], lead.first.acr.value))
    first, clean = lead.first, lead.clean
    at = _at_sigma([first.entry.sigma])
    text = f"{_name(first)} classifies {first.accuracy[0]:.1f} % correctly{at and f' at {at}'}"
    if f"{clean.accuracy[0]:.1f}" == f"{first.accuracy[0]:.1f}":
        text += ", the best of all" if lead.second else ""
    else:
        text += f", {_name(clean)} {clean.accuracy[0]:.1f} %: a larger radius costs clean accuracy"
    return [{"title": "Clean accuracy", "text": f"{text}."}]


def _radius_sentence(best: Sequence[BestAt]) -> list[Json]:
    if not best or all(at.second is None for at in best):
        return []
    parts = []
    for name, group in groupby(best, key=lambda at: _name(at.first)):
        members = list(group)
        first, last = members[0].radius, members[-1].radius
        where = f"r = {first:.2f}" if first == last else f"r = {first:.2f} to {last:.2f}"
        parts.append(f"{name} at {where}")
    return [{"title": "Most images certified", "text": f"{_listed(parts)}, each with its best {SIGMA}."}]


def _cost_sentence(leads: Sequence[Lead], costs: Mapping[int, float]) -> list[Json]:
    """Compare the cost of training the winner and the next method, at the noise level with the largest ACR."""
    lead = max(leads, key=lambda lead: lead.first.acr.value)
    parts = [f"{_name(row)} {costs[id(row)]:.1f}" for row in (lead.first, lead.second) if row and id(row) in costs]
    if not parts or lead.second is None:
        return []
    return [{"title": "Training cost", "text": f"{' and '.join(parts)} times the network passes of Gaussian training."}]


def corruption_message(networks: Sequence[CorruptedResults]) -> Json | None:
    """Return the message on corrupted images, of the group with the most networks; None without any."""
    if not networks:
        return None
    group = max(corruption_groups(networks), key=len)
    acr = [summarize(entry, "acr") for entry in group]
    accuracy = [summarize(entry, "accuracy") for entry in group]
    order = sorted(range(len(group)), key=lambda i: -acr[i].mean.value)
    first, kinds = order[0], group[order[0]].corruptions
    wins = sum(all(acr[first].by_corruption[k] >= a.by_corruption.get(k, 0.0) for a in acr) for k in kinds)
    worst = min(kinds, key=lambda kind: acr[first].by_corruption[kind])
    name = group[0].dataset or group[0].suite
    where = dataset_title(name.removesuffix("-c")) + ("-C" if name.endswith("-c") else "")
    where += f" ({at})" if (at := _at_sigma([group[0].sigma])) else ""
    uneven = "" if same_images(group) else " Networks were certified on different numbers of images."
    sure = max(range(len(group)), key=lambda i: accuracy[i].mean.value)
    lead = _corruption_lead(group[first], group[order[1]]) if len(group) > 1 else None
    over = ""
    if lead:
        over = f" ({_ahead(lead, group[order[1]].name)}, paired on the images both have)"
    details = [
        {"title": "Mean ACR", "text": f"{acr[first].mean.value:.3f} over {len(kinds)} corruptions{over}."},
        {
            "title": "Accuracy",
            "text": f"{group[first].name} classifies {accuracy[first].mean.value:.1f} % of corrupted images correctly"
            + ("." if sure == first else f", {group[sure].name} {accuracy[sure].mean.value:.1f} %."),
        },
        {
            "title": "By corruption",
            "text": f"{group[first].name} has the largest ACR on {wins} of {len(kinds)} corruptions; its worst is "
            f"{worst.replace('_', ' ')}, {acr[first].by_corruption[worst]:.3f}.{uneven}",
        },
    ]
    several = f"{group[first].name} has the largest average certified radius on corrupted images, {where}."
    single = f"{group[first].name} on corrupted images, {where}."
    return {"headline": several if len(group) > 1 else single, "details": details}


def _corruption_lead(first: CorruptedResults, second: CorruptedResults) -> Estimate | None:
    """Return the paired difference in mean ACR over the corruptions and images that both networks have."""
    keys = [key for key in first.parts if key in second.parts and key[0] in first.corruptions]
    images = [np.intersect1d(first.parts[key].images, second.parts[key].images) for key in keys]
    shared = images[0] if images else np.array([], dtype=np.int64)
    for other in images[1:]:
        shared = np.intersect1d(shared, other)
    if len(shared) < 2:
        return None
    means = []
    for network in (first, second):
        radii = [part.radius[np.searchsorted(part.images, shared)] for key in keys if (part := network.parts[key])]
        means.append(np.mean(radii, axis=0))
    return estimate(means[0] - means[1])
