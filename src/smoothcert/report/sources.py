"""What `smoothcert report` is given: results files, run folders, folders of either; and what lies beside them."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from smoothcert.dataset_names import DIMENSIONS, canonical_name
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.report.corrupted.files import home_of, is_corrupted
from smoothcert.report.corrupted.network_results import CorruptedResults
from smoothcert.report.corrupted.networks import read_corrupted
from smoothcert.report.tables.labels import tell_apart
from smoothcert.report.tables.paper_numbers import METHODS
from smoothcert.report.tables.table import Entry, describe
from smoothcert.results.merge import images_of
from smoothcert.results.naming import COMPANION_SUFFIXES, sidecar_path
from smoothcert.results.reader import read_results, try_reading
from smoothcert.results.records import COLUMNS
from smoothcert.training.config import TrainConfig, read_config
from smoothcert.training.recipes import paper_tables


@dataclass(frozen=True)
class Run:
    """A results file with everything its folder knows of it; `epochs` and `segments` as training wrote them."""

    entry: Entry
    path: Path
    config: TrainConfig | None = None
    epochs: Sequence[dict[str, Any]] = ()
    segments: Sequence[dict[str, Any]] = ()
    note: str = ""  # what is to be said of it, in one line

    @property
    def name(self) -> str:
        """The run's own name: its configuration's, its network's, else its file's."""
        told = self.entry.results.about.get("settings", {}).get("model", {}).get("name")
        return self.config.name if self.config else told or self.entry.results.name

    @property
    def unfinished(self) -> str:
        """What there is to say of results that lack images they were to have; empty where none is lacking."""
        settings, there = self.entry.results.about.get("settings", {}), len(self.entry.results)
        asked = len(images_of(settings["images"])) if "images" in settings else there
        if there >= asked:
            return ""
        unfair = (
            " Those decided soonest came first: numbers of these are not those of all." if "stop" in settings else ""
        )
        return f"{self.name}: {there:,} of {asked:,} images so far.{unfair}"


@dataclass(frozen=True)
class Findings:
    """Everything that was named: runs certified on clean images, and certificates on corrupted ones."""

    runs: list[Run]
    corrupted: list[CorruptedResults]


def read_findings(texts: Sequence[str], **given: Any) -> Findings:
    """Read everything that was named; `given` is the data set and noise level of files that do not say them."""
    found = find_results(texts)
    corrupted = [path for _, path in found if is_corrupted(path)]
    plain = [(name, path) for name, path in found if path not in corrupted]
    homes = {home_of(path) for path in corrupted}
    beside = {path for _, path in plain if path.absolute().parent in homes}
    clean = [path for _, path in plain if path in beside or (corrupted and sidecar_path(path).is_file())]
    runs = [
        _read_run(path, name, given)
        for name, path in plain
        if path not in beside or sidecar_path(path).is_file()  # else `clean.tsv`, which tells no method
    ]
    return Findings(tell_apart(runs), read_corrupted([*corrupted, *clean], **given) if corrupted else [])


def read_runs(texts: Sequence[str], **given: Any) -> list[Run]:
    """Read the runs on clean images among what was named."""
    return read_findings(texts, **given).runs


def find_results(texts: Sequence[str]) -> list[tuple[str | None, Path]]:
    """Return (name, results file) of each `[NAME=]FILE`, and of all files below each folder.

    Of what a glob or a folder offers, files of counts and looks are left out; of a folder also what it holds of
    `compare-precision`.
    """
    found: list[tuple[str | None, Path]] = []
    for text in texts:
        before, equals, after = text.partition("=")
        name, path = (before, Path(after)) if equals and not Path(text).exists() else (None, Path(text))
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if _is_result(file))
            if not files:
                raise UsageError(f"{path} holds no certification result (a .tsv with {', '.join(COLUMNS[:5])}).")
            found += [(name, file) for file in files]
        else:
            found.append((name, path))
    shown = [(name, path) for name, path in found if not path.name.removesuffix(".gz").endswith(COMPANION_SUFFIXES)]
    return list(dict.fromkeys(shown or found))


def _is_result(path: Path) -> bool:
    if not re.search(r"(?<!\.counts)\.tsv(\.gz)?$", path.name):
        return False
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            header, first = file.readline().rstrip("\n").split("\t"), file.readline().strip()
    except (OSError, EOFError, UnicodeDecodeError):
        return False
    if "transferred" in header:  # a comparison of two precisions
        return False
    return set(COLUMNS[:5]) <= set(header) and bool(first)  # one that has only begun has nothing to show


def _read_run(path: Path, name: str | None, given: dict[str, Any]) -> Run:
    results = read_results(path)
    told = dict(given)
    if not results.about and canonical_name(path.parent.name) in DIMENSIONS:
        told.setdefault("dataset", canonical_name(path.parent.name))
    config = path.parent / "config.toml"
    run = Run(
        describe(results, name, **told),
        path,
        read_config(config) if config.is_file() else None,
        _read_lines(path.parent / "metrics.jsonl"),
        _read_json(path.parent / "segments.json"),
        " ".join(try_reading(note).split()) if (note := path.parent / "note.md").is_file() else "",
    )
    return dataclasses.replace(run, entry=_of_the_paper(run, name))


def _of_the_paper(run: Run, name: str | None) -> Entry:
    """Give a run that is a row of one of the paper's other tables that row, and a name that tells it apart."""
    place = paper_places().get(recipe_of(run))
    if place is None or run.entry.protocol:  # the paper's rows are of its own protocol
        return run.entry
    table, setup = place
    told = name or f"{METHODS.get(run.entry.method or '', run.entry.name)}, {setup}"
    return dataclasses.replace(run.entry, name=told, paper=(table, setup))


def recipe_of(run: Run) -> str:
    """Return the name of the recipe a run was made by, whatever its seed; empty where it has no configuration."""
    return re.sub(r"-seed\d+$", "", run.config.name) if run.config else ""


@cache
def paper_places() -> dict[str, tuple[str, str]]:
    """Return the recipes that no main table has, each with its table in the paper and its setup there."""
    rows = [(recipe, table.paper, setup) for table in paper_tables().values() for recipe, setup in table.rows]
    main = {recipe for recipe, _, setup in rows if setup in ("", "5 seeds")}
    return {recipe: (table, setup) for recipe, table, setup in reversed(rows) if recipe not in main}


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return _parse(path, lambda text: [json.loads(line) for line in text.splitlines() if line.strip()])


def _read_json(path: Path) -> list[dict[str, Any]]:
    return _parse(path, json.loads)


def _parse(path: Path, read: Any) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    try:
        content = read(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SmoothcertError(f"{path} cannot be read as JSON ({error}).") from error
    return [row for row in content if isinstance(row, dict)] if isinstance(content, list) else []
