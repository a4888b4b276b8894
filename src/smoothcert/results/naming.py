"""Names of results files and of the files beside them."""

from __future__ import annotations

from pathlib import Path

from smoothcert.errors import UsageError

COMPANION_SUFFIXES = (".counts.tsv", ".looks.tsv")
"""Suffixes of the TSV files beside a results file."""


def results_name(
    task: str,
    dataset: str,
    split: str,
    sigma: float,
    n: int,
    *,
    skip: int = 1,
    most: int | None = None,
    shard: tuple[int, int] = (1, 1),
    severities: str = "",
) -> str:
    """Return the default name of a results file, built from its settings.

    >>> results_name("certify", "mnist-c/fog", "test", 0.25, 1000, skip=20)
    'certify-mnist-c-fog-test-sigma0.25-n1000-skip20.tsv'
    """
    parts = [task, dataset.replace("/", "-") + severities, split, f"sigma{sigma:g}", f"n{n}"]
    parts += [f"skip{skip}"] if skip > 1 else []
    parts += [f"max{most}"] if most else []
    parts += ["shard{}of{}".format(*shard)] if shard[1] > 1 else []
    return "-".join(parts) + ".tsv"


def results_stem(path: Path) -> str:
    """Return the name of a results file without .tsv and .gz.

    >>> results_stem(Path("runs/a.tsv.gz"))
    'a'
    """
    return path.name.removesuffix(".gz").removesuffix(".tsv")


def sidecar_path(path: Path) -> Path:
    """Return the path of the JSON file beside a results file."""
    return path.with_name(results_stem(path) + ".json")


def counts_path(path: Path) -> Path:
    """Return the path of the counts file beside a results file; it ends in .gz if the results file does."""
    return _companion(path, ".counts.tsv")


def looks_path(path: Path) -> Path:
    """Return the path of the looks file beside a results file; it ends in .gz if the results file does."""
    return _companion(path, ".looks.tsv")


def level_paths(path: Path, levels: int) -> list[Path]:
    """Return the paths of a cascade's counts files, one per level, beside its results file.

    >>> [file.name for file in level_paths(Path("a.tsv"), 2)]
    ['a.level1.counts.tsv', 'a.level2.counts.tsv']
    """
    return [_companion(path, f".level{level}.counts.tsv") for level in range(1, levels + 1)]


def _companion(path: Path, suffix: str) -> Path:
    if not path.name:
        raise UsageError(f"Expected the path of a results file, but got {str(path)!r}.")
    return path.with_name(results_stem(path) + suffix + (".gz" if path.suffix == ".gz" else ""))


def is_companion(path: Path) -> bool:
    """Return True if a file is named like a counts or looks file.

    >>> is_companion(Path("a.counts.tsv.gz")), is_companion(Path("a.tsv"))
    (True, False)
    """
    return path.name.removesuffix(".gz").endswith(COMPANION_SUFFIXES)


def certificates_in(folder: Path, *, below: bool = False) -> list[Path]:
    """Return the results files of `certify` in a folder, including gzipped ones; with `below`, also in subfolders."""
    prefix = "**/" if below else ""
    files = [path for suffix in (".tsv", ".tsv.gz") for path in folder.glob(f"{prefix}certify-*{suffix}")]
    return sorted(path for path in files if not is_companion(path))


def check_name(out: Path) -> None:
    """Raise if `out` is a folder or a device, or is named like a gzipped, sidecar, counts or looks file."""
    taken = out.suffix in (".json", ".gz") or out.name.endswith(COMPANION_SUFFIXES)
    if taken or (out.exists() and not out.is_file()):
        raise UsageError(
            f"Expected `out` to be a results file ending in .tsv, and not in .counts.tsv or .looks.tsv, but got {out}."
        )


def check_new(out: Path) -> None:
    """Raise if `out` is not a valid name for a results file, or if it or a file that belongs beside it exists."""
    check_name(out)
    files = (out, sidecar_path(out), counts_path(out), looks_path(out), *level_paths(out, 1))
    if existing := [path for path in files if path.exists()]:
        raise UsageError(f"{existing[0]} already exists; choose another `out`.")
