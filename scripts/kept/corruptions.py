"""Corrupted images: methods compared on common images, and each network on all its images beside the paper."""

from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations

import numpy as np

from kept.comparison import CLOSE, is_close, swap_sentence
from kept.shelf import certificates
from smoothcert.report.corrupted.files import is_corrupted
from smoothcert.report.corrupted.grouping import read_corrupted
from smoothcert.report.corrupted.means import KINDS, summarize
from smoothcert.report.corrupted.tables import corruption_sheets, paper_values
from smoothcert.report.tables.formats import to_markdown
from smoothcert.report.tables.paper_numbers import PAPER_METHODS
from smoothcert.statistics.metrics import estimate

_EVERY = {1: "all", 5: "every fifth,", 10: "every tenth,", 100: "every hundredth,"}
_BY_CORRUPTION = (
    "By corruption, {images}. `+-` is the standard error of the mean over images; `clean` is the same network on the "
    "same images without corruption. The images are a new draw of the corruptions by the published generator, so "
    "single corruptions may differ slightly from the paper's."
)


def read_networks(folder):
    """Return the networks of a table of corrupted images in the paper's order, with their clean certificates."""
    runs = {path.parent.name for path in certificates(folder)}
    kept = [path for path in certificates(folder.parent) if path.parent.name in runs]
    found = read_corrupted(path for path in kept if path.is_relative_to(folder) or not is_corrupted(path))
    order = [*PAPER_METHODS, None]
    return sorted(found, key=lambda entry: order.index(entry.method))


def corruption_lines(networks):
    """Return the tables of networks on corrupted images."""
    if not networks:
        return []
    common = on_common_images(networks)
    larger = [entry for entry in networks if len(entry.images) > len(common[0].images)]
    lines = [*means(common), "", *order_lines(common), *against_paper(networks), ""]
    for entries, images in ((common, "on the common images"), (larger, "on all images that were certified")):
        if entries:
            sheets = map(to_markdown, corruption_sheets(entries, paper=True))
            lines += [_BY_CORRUPTION.format(images=images), "", *sheets, ""]
    return lines


def on_common_images(networks):
    """Return the networks restricted to the images that all of them were certified on."""
    images = reduce(np.intersect1d, (entry.images for entry in networks))

    def restrict(part):
        chosen = np.isin(part.images, images)
        return replace(part, images=part.images[chosen], radius=part.radius[chosen], correct=part.correct[chosen])

    return [
        replace(
            entry,
            parts={place: restrict(part) for place, part in entry.parts.items()},
            clean=entry.clean and restrict(entry.clean),
        )
        for entry in networks
    ]


def means(common):
    """Return mACR and mAcc of every method on the common images, with intervals over images."""
    best = max(common, key=lambda entry: summarize(entry, "acr").mean.value)
    lines = [
        f"Methods compared on the same images ({which_images(common[0].images)}):",
        "",
        f"| method | mACR | 95 % interval | mAcc, % | 95 % interval | mACR of {best.name} minus this, paired |",
        "| :--" + " | --:" * 5 + " |",
    ]
    for entry in common:
        cells = [entry.name]
        for kind, (_, _, _, form) in KINDS.items():
            mean = summarize(entry, kind).mean
            cells += [f"{mean.value:{form}}", f"{mean.low:{form}} to {mean.high:{form}}"]
        pair = paired(best, entry)
        cells.append("" if entry is best else f"{pair.value:.4f} ({pair.low:.4f} to {pair.high:.4f})")
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", "Intervals are over images, each with all its corruptions."]


@dataclass(frozen=True)
class Comparison:
    """Our ACR beside the paper's; for corrupted images, the mACR of a network on all its images."""

    name: str
    ours: float
    paper: float

    @property
    def difference(self):
        """Our number minus the paper's."""
        return self.ours - self.paper


def comparisons(networks):
    """Return the networks that the paper has, each beside its mACR there."""
    found = [(entry, paper_values(entry, "acr").get("mean")) for entry in networks]
    return [Comparison(entry.name, summarize(entry, "acr").mean.value, paper) for entry, paper in found if paper]


def against_paper(networks):
    """Return mACR and mAcc of every network on all its images beside the paper's, which are on all images."""
    lines = [
        "Each network on all images it was certified on, beside the paper, which has all 10,000:",
        "",
        f"| method | images | mACR | paper | difference | within {CLOSE} | mAcc, % | paper | difference |",
        "| :-- | :-- | --: | --: | --: | :-- | --: | --: | --: |",
    ]
    for entry in networks:
        cells = [entry.name, which_images(entry.images)]
        for kind, (_, _, _, form) in KINDS.items():
            mean, paper = summarize(entry, kind).mean.value, paper_values(entry, kind).get("mean")
            known = paper is not None
            cells += [f"{mean:{form}}", *([f"{paper:{form}}", _signed(mean - paper, kind)] if known else ["", ""])]
            if kind == "acr":
                cells.append(("yes" if is_close(mean - paper) else "no") if known else "")
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, *_harder(networks)]


def _signed(difference, kind):
    return f"{difference:+.4f}" if kind == "acr" else f"{difference:+.1f}"


def _harder(networks):
    """Return a sentence on the difference between the common images and all of them, if they differ."""
    larger = [
        (entry.name, *(summarize(one, "acr").mean.value for one in (restricted, entry)))
        for entry, restricted in zip(networks, on_common_images(networks), strict=True)
        if len(restricted.images) < len(entry.images)
    ]
    if not larger:
        return []
    texts = [f"{name} has {few:.4f} on the common images and {many:.4f} on all" for name, few, many in larger]
    harder = "are harder than" if all(few < many for _, few, many in larger) else "differ from"
    return ["", f"The common images {harder} the rest: {', '.join(texts)}."]


def order_lines(common):
    """Return every pair of methods, on common images, that the paper has in the opposite order."""
    lines = [f"- {text}" for text in swapped_methods(common)]
    return ["In another order than in the paper:", "", *lines, ""] if lines else []


def swapped_methods(common):
    """Return a sentence for every pair of methods that the paper has in the opposite order."""
    ranked = sorted(comparisons(common), key=lambda row: row.ours)
    entries = {entry.name: entry for entry in common}
    return [
        swap_sentence(high.name, low.name, paired(entries[high.name], entries[low.name]), low.paper - high.paper)
        for low, high in combinations(ranked, 2)
        if low.paper > high.paper
    ]


def paired(first, second):
    """Return the difference in mACR of two networks on the same images, with its interval."""
    radii = [np.mean([part.radius for part in entry.parts.values()], axis=0) for entry in (first, second)]
    return estimate(radii[0] - radii[1])


def which_images(images):
    """Return the number of images and the step between them, such as "every tenth, 1,000"."""
    gaps = set(np.diff(images).tolist())
    step = _EVERY.get(gaps.pop(), "") if len(gaps) == 1 else ""
    return f"{step} {len(images):,}".lstrip()
