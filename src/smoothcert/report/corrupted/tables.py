"""Tables of results on corrupted images, for printing and as JSON, with the paper's numbers on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from smoothcert.dataset_names import CORRUPTIONS, canonical_name
from smoothcert.report.corrupted.means import KINDS, Summary, summarize
from smoothcert.report.corrupted.results import CorruptedResults, corruption_groups, same_images
from smoothcert.report.tables.formats import Cell, Lines, Sheet
from smoothcert.report.tables.paper_numbers import paper_corruptions
from smoothcert.report.tables.table import rank_marks

_SHORT = {"canny_edges": "edges", "dotted_line": "line", "brightness": "bright", "pixelate": "pixel"}


def short_name(corruption: str) -> str:
    """Return the paper's short name for a corruption.

    >>> short_name("gaussian_noise"), short_name("canny_edges")
    ('gaussian', 'edges')
    """
    return _SHORT.get(corruption, corruption.partition("_")[0])


def corruption_sheets(entries: Sequence[CorruptedResults], *, paper: bool = False) -> list[Sheet]:
    """Return one table per dataset, noise level and n, with a group of lines for ACR and another for accuracy."""
    sheets = []
    for members in corruption_groups(entries):
        levels = sorted({level for entry in members for level in entry.severities})
        present = {name for entry in members for name, _ in entry.parts}
        names = [name for name in CORRUPTIONS[members[0].suite] if name in present]
        columns = [*map(short_name, names), *sorted(present.difference(names))]
        columns += [*(f"sev {level}" for level in levels if len(levels) > 1), "clean"]
        titles = [members[0].dataset or "", "sigma", "method", "mean", "+-", *columns, "images", "n"]
        sheets.append(Sheet(titles, [_group_lines(members, kind, ["mean", *columns], paper) for kind in KINDS]))
    return sheets


def _group_lines(members: Sequence[CorruptedResults], kind: str, columns: Sequence[str], paper: bool) -> Lines:
    title, _, _, form = KINDS[kind]
    summaries = [summarize(entry, kind) for entry in members]
    texts = [_texts(_by_column(*pair), columns, form) for pair in zip(members, summaries, strict=True)]
    ranked = same_images(members)
    marks = [
        rank_marks([float(text) if text and ranked else None for text in column]) for column in zip(*texts, strict=True)
    ]
    lines = []
    for row, (entry, summary) in enumerate(zip(members, summaries, strict=True)):
        mean, *others = (Cell(text, column[row]) for text, column in zip(texts[row], marks, strict=True))
        error = Cell(f"{summary.mean.standard_error:{form}}")
        start = [Cell(title), Cell(f"{entry.sigma:.2f}" if entry.sigma else "?"), Cell(entry.name)]
        end = [Cell(f"{len(entry.images):,}"), Cell(f"{entry.n:,}" if entry.n else "?")]
        lines.append([*start, mean, error, *others, *end])
        if paper and (printed := paper_values(entry, kind)):
            mean_text, *other_texts = _texts(printed, columns, form)
            lines.append([Cell(text, "paper") for text in ("", "", "  paper", mean_text, "", *other_texts, "", "")])
    return lines


def _texts(values: Mapping[str, float | None], columns: Sequence[str], form: str) -> list[str]:
    return ["" if (value := values.get(column)) is None else f"{value:{form}}" for column in columns]


def _by_column(entry: CorruptedResults, summary: Summary) -> dict[str, float | None]:
    """Return a network's values by column title; corruptions outside the suite keep their full names."""
    known = CORRUPTIONS[entry.suite]
    by_type = {short_name(name) if name in known else name: value for name, value in summary.by_corruption.items()}
    by_severity = {f"sev {level}": value for level, value in summary.by_severity.items()}
    return {"mean": summary.mean.value, **by_type, **by_severity, "clean": summary.clean}


def paper_values(entry: CorruptedResults, kind: str) -> dict[str, float]:
    """Return the paper's numbers, by column title, if it has the network's dataset, noise level and protocol."""
    published = canonical_name(entry.dataset or entry.suite) == entry.suite and entry.sigma in (None, 0.25)
    return paper_corruptions(entry.suite, entry.method, kind) if published and not entry.protocol else {}


def corruptions_json(entry: CorruptedResults, *, paper: bool = False) -> dict[str, Any]:
    """Return JSON-compatible values: mACR, mAcc, their intervals, and ACR and accuracy by corruption and severity."""
    about: dict[str, Any] = {key: getattr(entry, key) for key in ("name", "dataset", "sigma", "method", "n")}
    about |= {"images": len(entry.images), "missing": entry.missing}
    for kind, name in (("acr", "mACR"), ("accuracy", "mAcc")):
        summary = summarize(entry, kind)
        about[name] = vars(summary.mean)
        about[kind] = {
            "by_corruption": dict(summary.by_corruption),
            "by_severity": {str(level): value for level, value in summary.by_severity.items()},
            "cells": {f"{corruption}/{severity}": value for (corruption, severity), value in summary.cells.items()},
            "clean": summary.clean,
        }
        if paper:
            about[kind]["paper"] = paper_values(entry, kind)
    return about
