"""Coverage of the paper's tables: rows that were reproduced, rows that differ, and rows that are missing."""

from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from kept.comparison import CLOSE, is_close, printed_acr
from kept.corruptions import Comparison, comparisons, on_common_images, swapped_methods, which_images
from kept.published import pair_with_published
from kept.shelf import every, has_corrupted_images, kept_jobs, recipe_of
from smoothcert.dataset_names import TITLES
from smoothcert.paper.jobs import find_table, list_jobs
from smoothcert.paper.reproduce import row_of
from smoothcert.report.tables.paper_numbers import PAPER_METHODS, paper_numbers, paper_row
from smoothcert.results.reader import read_results
from smoothcert.training.recipes import paper_tables

MAIN = "cifar10"
"""The paper's main table (its Table 1)."""
NETWORKS = {
    "lenet": "LeNet",
    "cifar_resnet20": "ResNet-20",
    "cifar_resnet110": "ResNet-110",
    "resnet50": "ResNet-50",
}


@dataclass(frozen=True)
class ReproducedRow(Comparison):
    """A row of the paper with our ACR beside the paper's; `run` is the kept run of the first seed.

    If the authors published results per image, `paper` is their ACR on the images of our row, and `source` says so.
    """

    run: str
    dataset: str
    sigma: float
    source: str

    def __str__(self):
        place = f"{TITLES.get(self.dataset, self.dataset)} at sigma {self.sigma:.2f}"
        return f"{self.name} on {place} ({self.ours:.4f}, {self.source} {self.paper:.3f}, {self.difference:+.4f})"


@dataclass(frozen=True)
class TableCoverage:
    """Reproduced rows of one table, the number of all its rows, and a description of the missing ones."""

    table: str
    rows: list
    total: int
    missing: str

    @property
    def title(self):
        """Title of the table with its network."""
        network = NETWORKS[list_jobs(self.table)[0].config.architecture]
        title = find_table(self.table).title
        return title if network in title else f"{title} ({network})"

    def line(self):
        """Return the table's line in the coverage table."""
        close = sum(is_close(row.difference) for row in self.rows)
        largest = max((row.difference for row in self.rows), key=abs, default=None)
        cells = [self.title, labels(self.table), f"{len(self.rows)} of {self.total}"]
        cells += ["", ""] if largest is None else [f"{close} of {len(self.rows)}", f"{largest:+.4f}"]
        return f"| {' | '.join([*cells, self.missing])} |"


def coverage(folder, corrupted):
    """Return the coverage of every table of the paper, the main table first."""
    names = [name for name in paper_tables() if in_paper(name)]
    names.sort(key=lambda name: name != MAIN)
    clean = [clean_coverage(folder, name) for name in names if not has_corrupted_images(name)]
    return clean + [corrupted_coverage(name, corrupted.get(name, [])) for name in names if has_corrupted_images(name)]


def in_paper(name):
    """Return True if the paper has the table; its main tables have one seed, so the spread on others is ours alone."""
    table = find_table(name)
    return bool(table.paper) and (len(table.seeds) == 1 or any(setup for _, setup in table.rows))


def labels(name):
    """Return the paper's label of a table, and the number of further tables that the same certificates fill."""
    table = find_table(name)
    same = {row["table"] for row in paper_numbers() if table.data and row["dataset"] == table.data.replace("-", "")}
    others = len(same - {table.paper})
    return f"`{table.paper}`" + (f" and {others} more" if others else "")


def clean_coverage(folder, name):
    """Return the coverage of a table of clean images; a row over several seeds needs all of them."""
    rows, missing, fewer, runs = [], [], [], 0
    jobs = kept_jobs(folder, name)
    groups = [list(group) for _, group in groupby(jobs, key=lambda pair: recipe_of(pair[0]))]
    for group in groups:
        runs += sum(path is not None for _, path in group)
        if all(path for _, path in group):
            rows += reproduced(name, group)
            fewer += [(job, path) for job, path in group[:1] if every(path) > job.skip]
        else:
            missing.append(group[0][0])
    text = "all rows" if len(missing) == len(groups) else by_method(missing)
    if fewer:
        images = which_images(sorted(read_results(fewer[0][1]).idx))
        text = "; ".join([*filter(None, [text]), f"{images} images only: {by_method(job for job, _ in fewer)}"])
    if runs and len(find_table(name).seeds) > 1:
        text += f" ({runs} of {len(jobs)} runs are kept)"
    return TableCoverage(name, rows, len(groups), text)


def reproduced(name, group):
    """Return a row of the paper as a list, empty if the paper has no number for it."""
    results = [read_results(path) for _, path in group]
    job, entry = group[0][0], row_of(name, group[0][0], results[0])
    paper = paper_row(entry.dataset, entry.sigma, entry.method, *entry.paper)
    if paper is None:
        return []
    pair = pair_with_published(entry) if len(group) == 1 else None
    numbers = (pair.ours, pair.published) if pair else (fmean(map(printed_acr, results)), paper.acr)
    source = "published" if pair else "paper"
    return [ReproducedRow(job.label, *numbers, job.config.name, entry.dataset, entry.sigma, source)]


def by_method(jobs):
    """Return the rows of these jobs, such as "SmoothAdv: sigma 0.25, sigma 1.00"."""
    setups = {}
    for job in jobs:
        setups.setdefault(PAPER_METHODS[job.config.method], []).append(job.setup or f"sigma {job.config.sigma:.2f}")
    return "; ".join(f"{method}: {', '.join(names)}" for method, names in setups.items())


def corrupted_coverage(name, networks):
    """Return the coverage of a table of corrupted images, whose rows are networks."""
    total = len(find_table(name).rows)
    rows = comparisons(networks)
    if not rows:
        return TableCoverage(name, [], total, "all rows")
    fewer = fewer_images(networks)
    text = f"{which_images(fewer[0].images)} images only: {', '.join(e.name for e in fewer)}" if fewer else ""
    return TableCoverage(name, rows, total, text)


def coverage_lines(tables, corrupted):
    """Return the headline and the coverage table."""
    lines = [
        "| table of the paper | label | rows reproduced | ACR within 0.01 | largest difference | missing |",
        "| :-- | :-- | --: | --: | --: | :-- |",
        *(table.line() for table in tables),
        "",
        "A row counts as reproduced if a network was trained and certified by the paper's recipe. Differences are our "
        "ACR minus the paper's; on corrupted images the mean ACR over corruptions (mACR). Where the authors published "
        "results per image, both ACRs are on the images of our row. A run that several tables share counts in each "
        "of them.",
    ]
    return [*headline(tables, corrupted), *picture(tables), "## Coverage", "", *lines, ""]


def picture(tables):
    """Return the figure of all rows on clean images, which `scripts/docs_results.py` draws, if there are any."""
    about = (
        "Left: our ACR against the paper's, with 95 % intervals; all rows are near the diagonal. Right: differences."
    )
    clean = any(table.rows for table in tables if not has_corrupted_images(table.table))
    return [f"![{about}](docs/images/results-paper.svg)", ""] if clean else []


def headline(tables, corrupted):
    """Return the paragraphs on top of the page."""
    main = next(table for table in tables if table.table == MAIN)
    state = {0: "has not been reproduced", main.total: "has been reproduced"}
    verdict = state.get(len(main.rows), "has been reproduced only in part")
    started = f"**The paper's main table, {main.title}, {verdict}: {len(main.rows)} of {main.total} rows.**"
    untouched = [table.title for table in tables if not table.rows and table is not main]
    if untouched:
        started += f" No row of the following tables has been reproduced either: {'; '.join(untouched)}."
    paragraphs = [started, clean_headline(tables)]
    for name, networks in corrupted.items():
        if in_paper(name) and networks:
            paragraphs.append(corrupted_headline(name, networks))
    return [line for paragraph in paragraphs if paragraph for line in (paragraph, "")]


def clean_headline(tables):
    """Return a sentence on all distinct rows on clean images, and those that differ from the paper."""
    clean = [row for table in tables if not has_corrupted_images(table.table) for row in table.rows]
    rows = list({row.run: row for row in reversed(clean)}.values())  # of shared runs, the first table
    if not rows:
        return ""
    far = far_rows(rows)
    text = f"Of {len(rows)} rows reproduced on clean images, {len(rows) - len(far)} have an average certified radius "
    text += f"(ACR) within {CLOSE} of the paper's."
    return text + (f" The others: {'; '.join(map(str, far))}." if far else "")


def far_rows(rows):
    """Return the rows that are not close to the paper, the largest difference first."""
    return sorted((row for row in rows if not is_close(row.difference)), key=lambda row: -abs(row.difference))


def corrupted_headline(name, networks):
    """Return sentences on the rows of a table of corrupted images, and on methods that the paper ranks differently."""
    rows = comparisons(networks)
    far, title = far_rows(rows), find_table(name).title
    text = f"{title}: {len(rows) - len(far)} of {len(rows)} mean ACRs are within {CLOSE} of the paper's."
    if far:
        text += f" The others: {', '.join(f'{row.name} {row.difference:+.4f}' for row in far)}."
    if fewer := fewer_images(networks):
        text += f" {len(fewer)} of the networks were certified on fewer images than in the paper."
    return " ".join([text, *swapped_methods(on_common_images(networks))])


def fewer_images(networks):
    """Return the networks that were certified on fewer images than others."""
    most = max(len(entry.images) for entry in networks)
    return [entry for entry in networks if len(entry.images) < most]
