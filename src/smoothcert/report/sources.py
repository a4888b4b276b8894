"""Find and read the results that `smoothcert report` is given: results files, and folders that contain them."""

from __future__ import annotations

import dataclasses
import gzip
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from smoothcert.dataset_names import DIMENSIONS, canonical_name
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.report.corrupted.files import folder_and_severity, is_corrupted
from smoothcert.report.corrupted.grouping import read_corrupted
from smoothcert.report.corrupted.results import CorruptedResults
from smoothcert.report.results_reader import ResultsReader
from smoothcert.report.tables.entries import Entry, describe
from smoothcert.report.tables.unique_titles import make_titles_unique
from smoothcert.results.image_lists import images_of
from smoothcert.results.naming import is_companion, sidecar_path
from smoothcert.results.records import COLUMNS
from smoothcert.runtime.bounded_files import read_text
from smoothcert.training.config import TrainConfig, read_config
from smoothcert.training.known_methods import known_methods, method_title
from smoothcert.training.passes import TRAINING_PASS, relative_cost
from smoothcert.training.recipes import paper_tables
from smoothcert.training.run_records import read_metrics, read_segments

_LONGEST_LINE = 10_000  # characters of a header or row


@dataclass(frozen=True)
class Run:
    """A results file and the other contents of its folder; `epochs` and `segments` are records of the training."""

    entry: Entry
    path: Path
    config: TrainConfig | None = None
    epochs: Sequence[dict[str, Any]] = ()
    segments: Sequence[dict[str, Any]] = ()
    note: str = ""  # text of note.md, on one line

    @property
    def name(self) -> str:
        """Name of the training configuration or, without one, of the model or the results file."""
        model: str | None = self.entry.settings.get("model", {}).get("name")
        return self.config.name if self.config else model or self.entry.results.name

    @property
    def recipe(self) -> str:
        """Name of the recipe: that of the configuration without a seed suffix, empty without a configuration."""
        return re.sub(r"-seed\d+$", "", self.config.name) if self.config else ""

    @property
    def unfinished(self) -> str:
        """Message stating how many images are finished, empty if the results are complete."""
        settings, done = self.entry.settings, len(self.entry.results)
        requested = len(images_of(settings["images"])) if "images" in settings else done
        if done >= requested:
            return ""
        biased = " Easy images finish first, so these numbers are biased." if "stop" in settings else ""
        return f"{self.name}: {done:,} of {requested:,} images so far.{biased}"


@dataclass(frozen=True)
class Findings:
    """All results that were read: runs on clean images, and networks on corrupted images."""

    runs: list[Run]
    corrupted: list[CorruptedResults]


def read_findings(
    texts: Sequence[str],
    *,
    unverified: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **given: Any,
) -> Findings:
    """Read the results files found by `find_results`; raise if rows are invalid, see `ResultsReader`.

    `given` may contain `dataset` and `sigma`, for files without a sidecar. `progress` is called with the number of
    files read and the total.
    """
    files = find_results(texts)
    on_read = (lambda done: progress(done, len(files))) if progress else None
    reader = ResultsReader(given, unverified=unverified, on_read=on_read)
    corrupted = [path for _, path in files if is_corrupted(path)]
    clean = [(name, path) for name, path in files if path not in corrupted]
    folders = {folder_and_severity(path)[0] for path in corrupted}
    own = {path for _, path in clean if sidecar_path(path).is_file()}
    beside = {path for _, path in clean if path.absolute().parent in folders} - own  # without the name of a method
    references = [path for _, path in clean if path in own | beside]
    networks = read_corrupted([*corrupted, *references], reader) if corrupted else []
    runs = [_read_run(path, name, reader) for name, path in clean if path not in beside]
    return Findings(make_titles_unique(runs), networks)


def read_runs(texts: Sequence[str], *, unverified: bool = False, **given: Any) -> list[Run]:
    """Read only runs on clean images; see `read_findings`."""
    return read_findings(texts, unverified=unverified, **given).runs


def find_results(texts: Sequence[str]) -> list[tuple[str | None, Path]]:
    """Return (name, results file) for each `[NAME=]FILE` in `texts`, and for all results files in folders.

    Counts and looks files are skipped unless `texts` names no other files.
    """
    files: list[tuple[str | None, Path]] = []
    for text in texts:
        before, equals, after = text.partition("=")
        name, path = (before, Path(after)) if equals and not Path(text).exists() else (None, Path(text))
        if path.is_dir():
            below = sorted(file for file in path.rglob("*") if _is_results_file(file))
            if not below:
                columns = ", ".join(COLUMNS[:5])
                raise UsageError(f"{path} contains no certification results file (a .tsv with columns {columns}).")
            files += [(name, file) for file in below]
        else:
            files.append((name, path))
    results = [(name, path) for name, path in files if not is_companion(path)]
    return list(dict.fromkeys(results or files))


def _is_results_file(path: Path) -> bool:
    if not re.search(r"(?<!\.counts)\.tsv(\.gz)?$", path.name) or not path.is_file():
        return False
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            header, first = file.readline(_LONGEST_LINE).rstrip("\n").split("\t"), file.readline(_LONGEST_LINE).strip()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error):
        return False
    if "transferred" in header:  # written by compare-precision
        return False
    return set(COLUMNS[:5]) <= set(header) and bool(first)  # a run that has just started has no rows yet


def _read_run(path: Path, name: str | None, reader: ResultsReader) -> Run:
    results, given, folder = reader.read(path), reader.given, path.parent
    if not results.about and canonical_name(folder.name) in DIMENSIONS:
        given = {"dataset": canonical_name(folder.name), **given}
    config, note = folder / "config.toml", folder / "note.md"
    run = Run(
        describe(results, name, **given),
        path,
        read_config(config) if config.is_file() else None,
        read_metrics(folder / "metrics.jsonl"),
        read_segments(folder / "segments.json"),
        " ".join(read_text(note).split()) if note.is_file() else "",
    )
    entry = _match_paper_row(run, name)
    return dataclasses.replace(run, entry=dataclasses.replace(entry, cost=_training_cost(run)))


def _training_cost(run: Run) -> float | None:
    """Return the cost of training per image in forward passes; None for cascades, ensembles and unknown training."""
    if run.config is None or run.config.method not in known_methods():
        return None
    if {"cascade", "ensemble"} & {*run.entry.settings, *run.entry.settings.get("model", {})}:
        return None
    try:
        return run.config.epochs * relative_cost(run.config) * TRAINING_PASS
    except (TypeError, ValueError, OverflowError) as error:  # invalid options
        raise SmoothcertError(
            f"{run.path.parent / 'config.toml'} has invalid options for its method; restore the file."
        ) from error


def _match_paper_row(run: Run, name: str | None) -> Entry:
    """Return the run's entry, linked to its row in the paper if its recipe is in a table other than the main tables.

    Without a `name`, a linked entry is renamed after its method and setup.
    """
    place = paper_places().get(run.recipe)
    if place is None or run.entry.protocol or not run.entry.method:  # all rows of the paper use the published protocol
        return run.entry
    label = name or f"{method_title(run.entry.method, run.entry.name)}, {place[1]}"
    return dataclasses.replace(run.entry, name=label, paper=place)


@cache
def paper_places() -> dict[str, tuple[str, str]]:
    """Map each recipe that is in no main table of the paper to its table and setup."""
    rows = [(recipe, table.paper, setup) for table in paper_tables().values() for recipe, setup in table.rows]
    main = {recipe for recipe, _, setup in rows if setup in ("", "5 seeds")}
    return {recipe: (table, setup) for recipe, table, setup in reversed(rows) if recipe not in main}
