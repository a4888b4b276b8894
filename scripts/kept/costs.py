"""Time and memory of runs."""

from itertools import pairwise

from smoothcert.training.config import read_config
from smoothcert.training.run_folder import RunFolder

_TITLES = [
    "| run | GPU | epochs | trained in | training, s | peak memory, GiB | votes in | certification, s |",
    "| --- | --- | --: | --- | --: | --: | --- | --: |",
]


def cost_lines(runs):
    """Return a table of costs for pairs of a results file's path and content."""
    return [*_TITLES, *(cost_line(path.parent, results) for path, results in runs)]


def cost_line(folder, results):
    """Return one line of the table; runs that were trained together all show their common time and memory."""
    run, config, about = RunFolder(folder), read_config(folder / "config.toml"), results.about
    training = sum(row["seconds"] for row in run.read_metrics())
    memory = max((segment.get("peak_memory", 0) for segment in run.read_segments()), default=0)
    cells = [folder.name, about["segments"][-1]["device"], config.epochs, config.precision, f"{training:,.0f}"]
    cells += [f"{memory / 2**30:.1f}" if memory else "", about["settings"]["precision"]]
    return f"| {' | '.join(map(str, [*cells, f'{certification_seconds(results):,.0f}']))} |"


def certification_seconds(results):
    """Return the seconds spent on all rows, in every segment of an interrupted certification.

    A killed segment recorded its time at its last save, or not at all. If its rows took longer in sum, that counts.
    """
    segments = results.about["segments"]
    edges = [*(segment["first_row"] for segment in segments), len(results)]
    rows = [results.seconds[first:last].sum() for first, last in pairwise(edges)]
    return float(sum(max(segment.get("seconds", 0.0), spent) for segment, spent in zip(segments, rows, strict=True)))
