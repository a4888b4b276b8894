"""RESULTS.md: coverage, our tables beside the paper's numbers, and the cost of every run."""

from itertools import groupby

from kept.cascades import cascade_lines
from kept.comparison import CLOSE, distances, ranking
from kept.corruptions import corruption_lines, read_networks
from kept.costs import cost_lines
from kept.coverage import NETWORKS, coverage, coverage_lines
from kept.published import pair_with_published, published_lines
from kept.shelf import certificates, has_corrupted_images, kept_rows, settings_of, shown_tables
from kept.verifying import check
from smoothcert.paper.jobs import find_table
from smoothcert.paper.reproduce import linf_of, row_of
from smoothcert.report.tables.formats import to_markdown
from smoothcert.report.tables.paper_numbers import PAPER_METHODS
from smoothcert.report.tables.seed_means import seed_annex
from smoothcert.report.tables.table import build_table
from smoothcert.results.reader import read_results
from smoothcert.training.config import read_config

_HEAD = [
    "# Results",
    "",
    "`python scripts/results.py write` generates this page from `results/`; `make verify-results` checks it.",
    "",
]
_VOTES = (
    "The certificates hold for the network in that precision: in bf16 its BatchNorm layers are folded into the "
    "convolutions and the folded weights rounded to bfloat16."
)
_UNEQUAL = "A comparison with equal epochs for all methods (`smoothcert reproduce equal-budgets`) has not been run."
_READING = f"""\
- `+-` is the standard error of the ACR over test images, for one training seed. It does not include the spread between
  seeds. In the summary of a table over seeds, `+-` is the standard deviation of the seeds' ACRs.
- `rounded` is our ACR from radii rounded to three significant digits, as in the published results files. `difference`
  compares it with the paper, and `within {CLOSE}` refers to this difference. At sigma 0.5 the largest radius that
  100,000 votes can prove, 1.906, is rounded to 1.91.
- `published` is the ACR of the results that the authors published per image, on the same images as ours; the standard
  error is that of the paired difference. A row `agrees` if the difference is at most {CLOSE}, or twice its standard
  error plus the paper's spread over seeds, which only the rows at sigma 0.5 have.
- `paper, five seeds` is the paper's mean and standard deviation over five seeds, if it reports them for these settings.
- Column `0.25` and so on: certified accuracy in percent at that radius. Bold is best, underlined second best.
- Costs: runs that were trained together show the time and memory of all of them. Certification counts every row,
  including those before an interruption."""


def verify_page(folder, page):
    """Raise if the page does not match the files."""
    current = page.read_text(encoding="utf-8") == results_page(folder)
    check(current, f"{page} is not up to date; run `python scripts/results.py write`")
    print(f"{page.name} matches the files", flush=True)


def results_page(folder):
    """Return the text of RESULTS.md."""
    shown = shown_tables(folder)
    corrupted = {name: read_networks(folder / name) for name in shown if has_corrupted_images(name)}
    sections = []
    for name in shown:
        if lines := corruption_lines(corrupted[name]) if name in corrupted else table_lines(folder, name):
            sections += [f"## {find_table(name).title}", "", *folded(lines)]
    lines = [*_HEAD, *coverage_lines(coverage(folder, corrupted), corrupted)]
    if sections:
        lines += ["## How to read the tables", "", *protocol_lines(folder), _READING, "", *sections]
        lines += cascade_lines(folder)
    return "\n".join(lines).rstrip() + "\n"


def folded(lines):
    """Return lines that a page shows only when they are opened."""
    return ['<details markdown="1"><summary>Tables</summary>', "", *lines, "</details>", ""]


def protocol_lines(folder):
    """Return the protocol of the certificates and the epochs of every method, from the files."""
    settings = [settings_of(path) for path in certificates(folder)]

    def values(key):
        return " or ".join(
            sorted({f"{one[key]:,}" if isinstance(one[key], int) else str(one[key]) for one in settings})
        )

    votes = f"votes in {values('precision')}, form {values('form')}"
    lines = [f"- Certificates: n0 = {values('n0')}, n = {values('n')}, alpha = {values('alpha')}; {votes}. {_VOTES}"]
    configs = {path.name: read_config(path / "config.toml") for path in sorted(folder.glob("*/*")) if path.is_dir()}
    order = list(PAPER_METHODS)
    trained = sorted({(one.architecture, one.epochs, order.index(one.method)) for one in configs.values()})
    texts = [
        f"{epochs} for {', '.join(PAPER_METHODS[order[method]] for _, _, method in group)} ({NETWORKS[architecture]})"
        for (architecture, epochs), group in groupby(trained, key=lambda one: one[:2])
    ]
    equal = "" if (folder / "equal-budgets").is_dir() else f" {_UNEQUAL}"
    return [*lines, f"- Training epochs, as published: {'; '.join(texts)}.{equal}"]


def table_lines(folder, table):
    """Return the sections of a table of clean images, or nothing if no row is kept."""
    rows = [(job, path, read_results(path)) for job, path in kept_rows(folder, table)]
    if not rows:
        return []
    built = build_table([row_of(table, job, results) for job, _, results in rows], paper=True, linf=linf_of(table))
    lines = [to_markdown(built), ""]
    if linf_of(table):  # the runs' own table has everything else
        return lines
    if len(find_table(table).seeds) > 1:
        lines += [to_markdown(seed_annex(built.rows).sheet), ""]
    elif find_table(table).paper:
        others = [row for row in built.rows if pair_with_published(row.entry) is None]
        lines += [*published_lines(built.rows), *(distances(others) if others else [])]
        lines += ["", *notes(folder / table), *ranking(built), ""]
    return [*lines, *cost_lines((path, results) for _, path, results in rows), ""]


def notes(folder):
    """Return the notes on the runs of a table."""
    files = sorted(folder.glob("*/note.md"))
    lines = [f"- {path.parent.name}: {' '.join(path.read_text(encoding='utf-8').split())}" for path in files]
    return [*lines, ""] if lines else []
