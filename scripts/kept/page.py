"""RESULTS.md: our tables with the paper's numbers beside them, how far off each row is, and what it cost."""

import numpy as np

from kept.comparison import distances, ranking
from kept.costs import cost_lines
from kept.shelf import certificates, kept_rows, shown_tables
from kept.verifying import check
from smoothcert.paper.jobs import find_table
from smoothcert.paper.reproduce import linf_of, row_of
from smoothcert.report.corrupted.files import is_corrupted
from smoothcert.report.corrupted.grouping import read_corrupted
from smoothcert.report.corrupted.means import KINDS, summarize
from smoothcert.report.corrupted.tables import corruption_sheets, paper_values
from smoothcert.report.tables.formats import to_markdown
from smoothcert.report.tables.paper_numbers import METHODS
from smoothcert.report.tables.seed_means import over_seeds, seed_annex
from smoothcert.report.tables.table import build_table
from smoothcert.results.reader import read_results

_HEAD = [
    "# Results",
    "",
    "Made by `python scripts/results.py write` from the files in `results/`; `make verify-results` checks them.",
    "",
]
_EVERY = {1: "all", 10: "every tenth,", 100: "every hundredth,"}
_BY_CORRUPTION = (
    "By corruption; +- is the standard error of the mean, and `clean` the same network on the same images before they "
    "were corrupted. The images are a fresh draw of the corruptions: single ones may differ a little from the paper's."
)


def verify_page(folder, page):
    """Fail if the page does not say what the files do."""
    current = page.read_text(encoding="utf-8") == results_page(folder)
    check(current, f"{page} is not up to date: `python scripts/results.py write`")
    print(f"{page.name} says what the files say", flush=True)


def results_page(folder):
    """Return the text of RESULTS.md."""
    lines = list(_HEAD)
    for table in shown_tables(folder):
        if shown := corruption_lines(folder / table) if find_table(table).data else table_lines(folder, table):
            lines += [f"## {find_table(table).title}", "", *shown]
    return "\n".join(lines).rstrip() + "\n"


def table_lines(folder, table):
    """Return a table of clean images with all there is to say of it, or nothing where no row is kept."""
    rows = [(job, path, read_results(path)) for job, path in kept_rows(folder, table)]
    if not rows:
        return []
    built = build_table([row_of(table, job, results) for job, _, results in rows], paper=True, linf=linf_of(table))
    lines = [to_markdown(built), ""]
    if linf_of(table):  # what else there is to say of its runs, their own table says
        return lines
    if len(find_table(table).seeds) > 1:
        lines += [to_markdown(seed_annex(over_seeds(built.rows)).sheet), ""]
    elif find_table(table).paper:
        lines += [*distances(built.rows), "", *notes(folder / table), *ranking(built), ""]
    return [*lines, *cost_lines((path, results) for _, path, results in rows), ""]


def notes(folder):
    """Return what the runs of a table have to say of themselves: of one that is not close, what was tried and why."""
    files = sorted(folder.glob("*/note.md"))
    lines = [f"- {path.parent.name}: {' '.join(path.read_text(encoding='utf-8').split())}" for path in files]
    return [*lines, ""] if lines else []


def corruption_lines(folder):
    """Return the tables of the runs on corrupted images; those on clean ones are kept with their own table."""
    runs = {path.parent.name for path in certificates(folder)}
    kept = [path for path in certificates(folder.parent) if path.parent.name in runs]
    found = read_corrupted(path for path in kept if path.is_relative_to(folder) or not is_corrupted(path))
    if not found:
        return []
    return [*means(found), "", _BY_CORRUPTION, "", *map(to_markdown, corruption_sheets(found, paper=True)), ""]


def means(entries):
    """Return mACR and mAcc with their intervals beside the paper's, in its order, and on which images each row is."""
    lines = [
        "| method | images | mACR | 95 % interval | paper | mAcc, % | 95 % interval | paper |",
        "| :-- | :--" + " | --:" * 6 + " |",
    ]
    order = [*METHODS, None]
    for entry in sorted(entries, key=lambda entry: order.index(entry.method)):
        cells = [entry.name, which_images(entry.images)]
        for kind, (_, _, _, form) in KINDS.items():
            mean, printed = summarize(entry, kind).mean, paper_values(entry, kind).get("mean")
            cells += [f"{mean.value:{form}}", f"{mean.low:{form}} to {mean.high:{form}}"]
            cells += ["" if printed is None else f"{printed:{form}}"]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", "Intervals are over images, each with all its corruptions."]


def which_images(images):
    """Return how many images there are, and every how many-th of the set."""
    gaps = set(np.diff(images).tolist())
    every = _EVERY.get(gaps.pop(), "") if len(gaps) == 1 else ""
    return f"{every} {len(images):,}".lstrip()
