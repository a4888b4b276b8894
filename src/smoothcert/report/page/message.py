"""Summary of a report in sentences: the method with the largest ACR, its lead and its training cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from smoothcert.report.page.phrases import SIGMA, Trained, ahead_text, at_sigma, cost_sentence, listed
from smoothcert.report.sources import Run
from smoothcert.report.symbols import with_symbols
from smoothcert.report.tables.formats import dataset_title
from smoothcert.report.tables.table import Table, TableRow
from smoothcert.report.tables.winners import (
    BestAt,
    Lead,
    best_by_radius,
    clean_accuracy,
    comparable_rows,
    leads_by_sigma,
    method_name,
)
from smoothcert.runtime.typed_files import Json
from smoothcert.training.config import TrainConfig
from smoothcert.training.known_methods import method_title


def dataset_messages(table: Table, runs: Sequence[Run], absent: Mapping[str, Sequence[str]]) -> list[Json]:
    """Return the message of each dataset, with its best run at each radius.

    `runs` must be in the order of the table's rows. `absent` contains, by dataset, the names of networks that have
    results on corrupted images only.
    """
    positions = {id(row): position for position, row in enumerate(table.rows)}
    configs = {id(row): run.config for row, run in zip(table.rows, runs, strict=True)}
    messages = []
    for dataset in dict.fromkeys(row.entry.dataset for row in table.rows):
        rows = comparable_rows(table, dataset)
        leads, best, names = leads_by_sigma(rows), best_by_radius(rows, table.radii), absent.get(dataset or "", ())
        lacking = f" {listed(names)} {'has' if len(names) == 1 else 'have'} no run on clean images here."
        messages.append(
            {
                "dataset": dataset,
                "headline": _headline(leads, dataset) + (lacking if names else ""),
                "details": [
                    {"title": title, "text": text}
                    for title, text in (
                        ("ACR", _acr_lines(leads)),
                        ("Clean accuracy", _clean_sentence(leads)),
                        ("Training cost", _cost_sentence(leads, configs)),
                        ("Most images certified", _radius_sentence(best)),
                    )
                    if text
                ],
                "compared": [positions[id(row)] for row in rows],
                "images": len(rows[0].entry.results),
                "missing": _missing_runs(rows),
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


def _missing_runs(rows: Sequence[TableRow]) -> list[str]:
    """Name the noise levels at which a method has no run but another method has one."""
    names = {method_name(row): method_title(row.entry.method, _name(row)) for row in rows}
    sigmas = sorted({row.entry.sigma for row in rows if row.entry.sigma})
    present = {(method_name(row), row.entry.sigma) for row in rows}
    lacking = {key: [sigma for sigma in sigmas if (key, sigma) not in present] for key in names}
    return [f"no {names[key]} run at {at_sigma(levels)}" for key, levels in lacking.items() if levels]


def _name(row: TableRow) -> str:
    return with_symbols(row.entry.name)


def _headline(leads: Sequence[Lead], dataset: str | None) -> str:
    where = f" on {dataset_title(dataset)}" if dataset else ""
    if all(lead.second is None for lead in leads):
        lead = max(leads, key=lambda lead: lead.first.acr.value)
        at = at_sigma([lead.first.entry.sigma])
        acr = f"{lead.first.acr.value:.3f}"
        return f"{_name(lead.first)} has an average certified radius of {acr}{where}{at and f' at {at}'}."
    winners = dict.fromkeys(_name(lead.first) for lead in leads)
    if len(winners) == 1:
        every = f" at every {SIGMA}" if len(leads) > 1 else ""
        second = leads[0].second if len(leads) == 1 and not leads[0].significant else None
        level = f" (not significantly larger than the radius of {_name(second)})" if second else ""
        return f"{next(iter(winners))} has the largest average certified radius{where}{every}{level}."
    parts = [
        f"{name} at {at_sigma(lead.first.entry.sigma for lead in leads if _name(lead.first) == name)}"
        for name in winners
    ]
    return f"Largest average certified radius{where}: {listed(parts)}."


def _acr_lines(leads: Sequence[Lead]) -> str:
    """Return a line per noise level: the run with the largest ACR, and its lead over the best run of another method."""
    lines = []
    for lead in leads:
        text = f"{_name(lead.first)} {lead.first.acr.value:.3f}"
        if lead.second and lead.ahead:
            text += f", {ahead_text(lead.ahead, _name(lead.second))}"
            text += "" if lead.significant else ", not significant"
        lines.append(f"{at}: {text}" if (at := at_sigma([lead.first.entry.sigma])) else text)
    return "\n".join(lines)


def _clean_sentence(leads: Sequence[Lead]) -> str:
    lead = max(leads, key=lambda lead: (lead.cleaner.value if lead.cleaner else 0.0, lead.first.acr.value))
    first, clean = lead.first, lead.clean
    own, most = (f"{clean_accuracy(row):.1f}" for row in (first, clean))
    at = at_sigma([first.entry.sigma])
    text = f"{_name(first)} classifies {own} % correctly{at and f' at {at}'}"
    if own == most:
        text += ", the best of all" if lead.second else ""
    else:
        costs = ": a larger radius costs clean accuracy" if lead.costs_accuracy else ", not significantly more"
        text += f", {_name(clean)} {most} %{costs}"
    return f"{text}."


def _radius_sentence(best: Sequence[BestAt]) -> str:
    if all(at.second is None for at in best):
        return ""
    parts = []
    for name, group in groupby(best, key=_winners):
        members = list(group)
        first, last = members[0].radius, members[-1].radius
        where = f"r = {first:.2f}" if first == last else f"r = {first:.2f} to {last:.2f}"
        parts.append(f"{name} at {where}")
    each = f", each with its best {SIGMA}" if len({at.first.entry.sigma for at in best}) > 1 else ""
    return f"{'; '.join(parts)}{each}."


def _winners(at: BestAt) -> str:
    """Name the best run at a radius, and the best run of the next method if its printed accuracy is equal."""
    level = at.second is not None and f"{at.accuracy:.1f}" == f"{at.second_accuracy:.1f}"
    return listed([_name(row) for row in (at.first, at.second if level else None) if row])


def _cost_sentence(leads: Sequence[Lead], configs: Mapping[int, TrainConfig | None]) -> str:
    """Compare the training costs of the best and the second-best method, at the noise level with the largest ACR."""
    lead = max(leads, key=lambda lead: (lead.second is not None, lead.first.acr.value))
    if lead.second is None:
        return ""
    trained = [
        Trained(_name(row), row.entry.dataset, row.entry.method, row.entry.sigma, configs[id(row)])
        for row in (lead.first, lead.second)
    ]
    return cost_sentence(trained)
