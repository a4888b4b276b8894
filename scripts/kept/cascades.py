"""Cascades of the kept results: three noise levels of each method, from their stored votes."""

from kept.shelf import kept_rows
from smoothcert.certification.cascade import certify_cascade
from smoothcert.dataset_names import TITLES
from smoothcert.report.tables.paper_numbers import PAPER_METHODS
from smoothcert.results.reader import read_results
from smoothcert.statistics.metrics import average_certified_radius, certified_accuracy

SIGMAS, TABLES, RADII = (1.0, 0.5, 0.25), ("mnist", "fashion-mnist"), (0.0, 0.25, 0.5, 1.0)
_TITLES = [
    "| dataset | method |  | ACR |" + "".join(f" {radius:.2f} |" for radius in RADII) + " abstained |",
    "| :-- | :-- | :-- | --: |" + " --: |" * (len(RADII) + 1),
]
_TEXT = """\
## Cascades of noise levels

The cascade of sigma 1, 0.5 and 0.25 (`smoothcert recertify --cascade`, p_0 = 0.5, 0.8 of alpha for the first lower
bound; [Combining networks](docs/combining.md) explains it) beside sigma 1 alone, from the same votes. Columns are as
above; `abstained` is the share of images without a certificate.
"""


def cascade_lines(folder):
    """Return the section on cascades, or nothing if no method has all three noise levels."""
    lines = [line for table in TABLES for line in _table_lines(folder, table)]
    return [*_TEXT.splitlines(), "", *_TITLES, *lines, ""] if lines else []


def _table_lines(folder, table):
    files = {(job.config.method, job.config.sigma): (job, path) for job, path in kept_rows(folder, table)}
    lines = []
    for method, title in PAPER_METHODS.items():
        if not all((method, sigma) in files for sigma in SIGMAS):
            continue
        paths = [files[method, sigma][1] for sigma in SIGMAS]
        alone = read_results(paths[0])
        made = certify_cascade(paths, unverified=True).records  # `verify_all` checks the sources
        rows = (
            ("sigma 1", alone.radius, alone.predict, alone.label),
            ("cascade", *zip(*((one.radius, one.predict, one.label) for one in made), strict=True)),
        )
        lines += [_line(TITLES[alone.about["settings"]["data"]["name"]], title, *row) for row in rows]
    return lines


def _line(dataset, method, what, radius, predict, label):
    correct = [one == other for one, other in zip(predict, label, strict=True)]
    accuracy = 100 * certified_accuracy(radius, correct, RADII)
    abstained = 100 * sum(one < 0 for one in predict) / len(label)
    cells = [dataset, method, what, f"{average_certified_radius(radius, correct):.3f}"]
    return f"| {' | '.join([*cells, *(f'{value:.1f}' for value in accuracy), f'{abstained:.1f}'])} |"
