"""Summary of the results on corrupted images, in sentences: the best network, its lead and its weakest corruption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from smoothcert.dataset_names import canonical_name
from smoothcert.report.corrupted.means import KINDS, Summary, summarize
from smoothcert.report.corrupted.results import CorruptedResults, corruption_groups, on_shared_images, same_images
from smoothcert.report.page.phrases import ahead_text, at_sigma
from smoothcert.report.page.training_cost import Trained, cost_sentence
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


def corruption_message(networks: Sequence[CorruptedResults], runs: Sequence[Run] = ()) -> Json | None:
    """Return the message on corrupted images for the largest group of networks, or None if there are no networks.

    All numbers are for the images that the networks of the group share, if they share any. `runs` are the runs on clean
    images, whose training configurations determine the networks' training cost.
    """
    if not networks:
        return None
    group = on_shared_images(max(corruption_groups(networks), key=len))
    acr = [summarize(entry, "acr") for entry in group]
    accuracy = [summarize(entry, "accuracy") for entry in group]
    order = sorted(range(len(group)), key=lambda i: -acr[i].mean.value)
    first, kinds = order[0], group[order[0]].corruptions
    name = group[0].dataset or group[0].suite
    where = dataset_title(name.removesuffix("-c")) + ("-C" if name.endswith("-c") else "")
    where += f" ({at})" if (at := at_sigma([group[0].sigma])) else ""
    sure = max(range(len(group)), key=lambda i: accuracy[i].mean.value)
    lead = _corruption_lead(group[first], group[order[1]]) if len(group) > 1 else None
    over = f", {ahead_text(lead, group[order[1]].name)}" if lead else ""
    if len(group) > 1:
        shared = f"the {len(group[0].images):,} images that all networks share"
        over += f", on {shared}" if same_images(group) else ", on different images"
    clean = _clean_accuracies({group[i].name: accuracy[i].clean for i in dict.fromkeys((first, sure))})
    details = [
        {"title": "Mean ACR", "text": f"{acr[first].mean.value:.3f} over {len(kinds)} corruptions{over}."},
        {
            "title": "Accuracy",
            "text": f"{group[first].name} classifies {accuracy[first].mean.value:.1f} % of corrupted images correctly"
            + ("." if sure == first else f", {group[sure].name} {accuracy[sure].mean.value:.1f} %.")
            + clean,
        },
    ]
    if len(group) > 1:
        others = {entry.name: summary for entry, summary in zip(group, acr, strict=True) if entry is not group[first]}
        details.append({"title": "By corruption", "text": _by_corruption(group[first], acr[first], others)})
        trained = [_trained(group[i], runs) for i in order[:2]]
        details.append({"title": "Training cost", "text": cost_sentence(trained)})
    several = f"{group[first].name} has the largest average certified radius on the corrupted images of {where}."
    single = f"Results of {group[first].name} on the corrupted images of {where}."
    return {"headline": several if len(group) > 1 else single, "details": details}


def _clean_accuracies(percentages: Mapping[str, float | None]) -> str:
    """Return a sentence about accuracy on the same images before corruption, empty if any accuracy is unknown."""
    if None in percentages.values():
        return ""
    values = [f"{name} {percentage:.1f} %" for name, percentage in percentages.items()]
    return f" Before corruption, {' and '.join(values)} of these images."


def _trained(network: CorruptedResults, runs: Sequence[Run]) -> Trained:
    dataset = _clean_name(network.dataset)
    key = dataset, network.method, network.sigma
    configs = [run.config for run in runs if (run.entry.dataset, run.entry.method, run.entry.sigma) == key]
    return Trained(network.name, *key, next(iter(configs), None))


def _by_corruption(first: CorruptedResults, own: Summary, others: Mapping[str, Summary]) -> str:
    """State on how many corruptions a network is best, and on which corruption it is furthest behind.

    Values are compared as printed; equal values are ties.
    """
    digits = KINDS["acr"][-1]
    gaps: dict[str, tuple[float, str]] = {}
    for kind in first.corruptions:
        rivals = {
            name: summary.by_corruption[kind] for name, summary in others.items() if kind in summary.by_corruption
        }
        if rivals:
            best = max(rivals, key=lambda name: rivals[name])
            gap = float(f"{rivals[best]:{digits}}") - float(f"{own.by_corruption[kind]:{digits}}")
            gaps[kind] = gap, f"{rivals[best]:{digits}} for {best}"
    level = sum(gap == 0 for gap, _ in gaps.values())
    wins = len(first.corruptions) - sum(gap >= 0 for gap, _ in gaps.values())
    text = f"{first.name} has the largest ACR on {wins} of {len(first.corruptions)} corruptions"
    text += f" and ties for the best on {level}" if level else ""
    worst = max(gaps, key=lambda kind: gaps[kind][0], default=None)
    if worst is None or gaps[worst][0] <= 0:
        return f"{text}."
    value = f"{own.by_corruption[worst]:{digits}} against {gaps[worst][1]}"
    return f"{text}; it is furthest behind on {worst.replace('_', ' ')}, {value}."


def _corruption_lead(first: CorruptedResults, second: CorruptedResults) -> Estimate | None:
    """Return the paired difference in mean ACR, over corruptions and images for which both networks have results."""
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
    return normal_estimate(means[0] - means[1])
