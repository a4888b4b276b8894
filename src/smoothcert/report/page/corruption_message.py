"""Summary of the results on corrupted images, in sentences: the best network, its lead and its weakest corruption."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import chain
from typing import NamedTuple

import numpy as np

from smoothcert.dataset_names import canonical_name
from smoothcert.report.corrupted.means import KINDS, Summary, summarize
from smoothcert.report.corrupted.results import CorruptedResults, corruption_groups, on_shared_images, same_images
from smoothcert.report.page.phrases import Trained, ahead_text, at_sigma, cost_sentence, listed
from smoothcert.report.sources import Run
from smoothcert.report.tables.entries import Entry
from smoothcert.report.tables.formats import dataset_title
from smoothcert.report.tables.paired import normal_estimate
from smoothcert.runtime.typed_files import Json
from smoothcert.statistics.metrics import Estimate


def without_clean_run(networks: Sequence[CorruptedResults], entries: Sequence[Entry]) -> dict[str, list[str]]:
    """Return the names of the networks that have no results on clean images, by name of the clean dataset."""

    def key(result: CorruptedResults | Entry) -> tuple[str, str, float | None]:
        return _clean_name(result.dataset), result.method or result.name, result.sigma

    present = {key(entry) for entry in entries}
    names: dict[str, list[str]] = {}
    for network in networks:
        if network.clean is None and key(network) not in present:
            names.setdefault(_clean_name(network.dataset), []).append(network.name)
    return names


def _clean_name(dataset: str | None) -> str:
    return canonical_name(dataset or "").removesuffix("-c")


class _Network(NamedTuple):
    results: CorruptedResults
    acr: Summary
    accuracy: Summary


def corruption_message(networks: Sequence[CorruptedResults], runs: Sequence[Run] = ()) -> Json | None:
    """Return the message on corrupted images for the largest group of networks, or None if there are no networks.

    All numbers are for the images that the networks of the group share, if they share any. `runs` are the runs on clean
    images, whose training configurations determine the networks' training cost.
    """
    if not networks:
        return None
    group = on_shared_images(max(corruption_groups(networks), key=len))
    summarized = [_Network(entry, summarize(entry, "acr"), summarize(entry, "accuracy")) for entry in group]
    first = max(summarized, key=lambda one: one.acr.mean.value)
    sure = max(summarized, key=lambda one: one.accuracy.mean.value)
    others = [one for one in summarized if one is not first]
    name, dataset = first.results.name, first.results.dataset or first.results.suite
    where = dataset_title(dataset.removesuffix("-c")) + ("-C" if dataset.endswith("-c") else "")
    where += f" ({at})" if (at := at_sigma([first.results.sigma])) else ""
    acr = f"{first.acr.mean.value:.3f} over {len(first.results.corruptions)} corruptions"
    accuracy = f"{name} classifies {first.accuracy.mean.value:.1f} % of corrupted images correctly"
    accuracy += "." if sure is first else f", {sure.results.name} {sure.accuracy.mean.value:.1f} %."
    clean = {one.results.name: one.accuracy.clean for one in (first, sure)}
    if None not in clean.values():
        before = listed([f"{key} {value:.1f} %" for key, value in clean.items()])
        accuracy += f" Before corruption, {before} of these images."
    if not others:
        details = [{"title": "Mean ACR", "text": f"{acr}."}, {"title": "Accuracy", "text": accuracy}]
        return {"headline": f"Results of {name} on the corrupted images of {where}.", "details": details}
    second = max(others, key=lambda one: one.acr.mean.value)
    lead = _corruption_lead(first.results, second.results)
    acr += f", {ahead_text(lead, second.results.name)}" if lead else ""
    shared = f"the {len(group[0].images):,} images that all networks share"
    acr += f", on {shared}" if same_images(group) else ", on different images"
    details = [
        {"title": "Mean ACR", "text": f"{acr}."},
        {"title": "Accuracy", "text": accuracy},
        {"title": "By corruption", "text": _by_corruption(first, others)},
        {"title": "Training cost", "text": cost_sentence([_trained(one.results, runs) for one in (first, second)])},
    ]
    headline = f"{name} has the largest average certified radius on the corrupted images of {where}."
    return {"headline": headline, "details": details}


def _trained(network: CorruptedResults, runs: Sequence[Run]) -> Trained:
    key = _clean_name(network.dataset), network.method, network.sigma
    configs = [run.config for run in runs if (run.entry.dataset, run.entry.method, run.entry.sigma) == key]
    return Trained(network.name, *key, next(iter(configs), None))


def _by_corruption(first: _Network, others: Sequence[_Network]) -> str:
    """State on how many corruptions a network is best, and where it is furthest behind, by values as printed."""

    def printed(network: _Network, kind: str) -> str:
        return f"{network.acr.by_corruption[kind]:{KINDS['acr'][-1]}}"

    kinds, gaps = first.results.corruptions, {}
    for kind in kinds:
        rivals = [one for one in others if kind in one.acr.by_corruption]
        if rivals:
            best = max(rivals, key=lambda one: one.acr.by_corruption[kind])
            gaps[kind] = float(printed(best, kind)) - float(printed(first, kind)), best
    level = sum(gap == 0 for gap, _ in gaps.values())
    wins = len(kinds) - sum(gap >= 0 for gap, _ in gaps.values())
    text = f"{first.results.name} has the largest ACR on {wins} of {len(kinds)} corruptions"
    text += f" and ties for the best on {level}" if level else ""
    worst = max(gaps, key=lambda kind: gaps[kind][0], default=None)
    if worst is None or gaps[worst][0] <= 0:
        return f"{text}."
    best = gaps[worst][1]
    against = f"{printed(first, worst)} against {printed(best, worst)} for {best.results.name}"
    return f"{text}; it is furthest behind on {worst.replace('_', ' ')}, {against}."


def _corruption_lead(first: CorruptedResults, second: CorruptedResults) -> Estimate | None:
    """Return the paired difference in mean ACR, over corruptions and images for which both networks have results."""
    keys = [key for key in first.parts if key in second.parts and key[0] in first.corruptions]
    parts = [[network.parts[key] for key in keys] for network in (first, second)]
    shared = reduce(np.intersect1d, [part.images for part in chain(*parts)]) if keys else ()
    if len(shared) < 2:
        return None
    means = [np.mean([part.radius[np.isin(part.images, shared)] for part in own], axis=0) for own in parts]
    return normal_estimate(means[0] - means[1])
