"""Merge the results files of shards, which have the same settings but contain different images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.results.image_lists import images_of
from smoothcert.results.lock import ResultsLock
from smoothcert.results.naming import check_new, counts_path, looks_path, sidecar_path
from smoothcert.results.sidecar import changed_settings, read_sidecar, write_sidecar
from smoothcert.results.verify import read_verified
from smoothcert.runtime.atomic_files import write_text
from smoothcert.runtime.bounded_files import read_text

_MOST_DIGITS = 15


def merge_results(files: Sequence[Path], out: Path, *, unverified: bool = False) -> int:
    """Merge results files into one, sorted by image; return the number of images.

    Unless `unverified`, raise if the rows of a certification do not follow from their votes.
    """
    check_new(out)
    for path in files:
        if not path.is_file():
            raise SmoothcertError(f"There is no results file {path}.")
    abouts = [_read_complete(sidecar_path(path)) for path in files]
    settings = [{**about["settings"], "images": None} for about in abouts]
    for path, other in zip(files, settings, strict=True):
        if changed := changed_settings(settings[0], other):
            raise UsageError(
                f"{path} was made with different settings than {files[0]}: {', '.join(changed)}. Merge only shards "
                "of one run."
            )
    header, rows = _join(files)
    count_header, counts = _join([counts_path(path) for path in files])
    images = [about["settings"]["images"] for about in abouts]
    expected = len(images_of(images))
    if rows.keys() != counts.keys() or len(rows) != expected:
        text = f"rows for {len(rows):,} and counts for {len(counts):,} of {expected:,} images"
        raise SmoothcertError(f"The files contain {text}; finish each shard before merging.")
    for path in () if unverified or settings[0].get("task") != "certify" else files:
        read_verified(path)
    about: dict[str, Any] = {"settings": {**settings[0], "images": images}}
    about["segments"] = [segment for part in abouts for segment in part["segments"]]
    texts = {counts_path(out): count_header + _sorted_rows(counts), out: header + _sorted_rows(rows)}
    if "stop" in settings[0]:  # certified sequentially
        about["samples"] = sum(part.get("samples", 0) for part in abouts)
        look_header, looks = _join([looks_path(path) for path in files], several=True)
        texts = {looks_path(out): look_header + _sorted_rows(looks)} | texts
    with ResultsLock(out):
        check_new(out)
        write_sidecar(out, about)
        for path, text in texts.items():
            write_text(path, text)
    return len(rows)


def _read_complete(path: Path) -> dict[str, Any]:
    about = read_sidecar(path)
    if "images" not in about.get("settings", {}) or "segments" not in about:
        raise SmoothcertError(
            f"{path} lacks `settings.images` or `segments`; only files written by smoothcert can be merged."
        )
    return about


def _sorted_rows(rows: dict[int, str]) -> str:
    return "".join(rows[index] for index in sorted(rows))


def _join(files: Sequence[Path], *, several: bool = False) -> tuple[str, dict[int, str]]:
    """Return the files' common header, and a dict from image index to the text of the image's row or rows.

    An image may have more than one row only with `several`, and only in the same file.
    """
    header, rows = "", dict[int, str]()
    for path in files:
        first, *lines = read_text(path).splitlines(keepends=True) or [""]
        if not [first, *lines][-1].endswith("\n"):
            raise SmoothcertError(f"{path} is empty or ends in the middle of a row; finish every shard before merging.")
        if header not in ("", first):
            raise UsageError(f"{path} and {files[0]} have different columns; merge only shards of one run.")
        header, own = first, dict[int, str]()
        for line in lines:
            number = line.split("\t", 1)[0]
            if not (number.isdecimal() and len(number) <= _MOST_DIGITS):
                raise SmoothcertError(f"{path}: expected rows to begin with an image index, but got {line[:40]!r}.")
            index = int(number)
            if index in rows or (index in own and not several):
                raise UsageError(
                    f"Image {index} appears twice, the second time in {path}; merge only files for different images."
                )
            own[index] = own.get(index, "") + line
        rows |= own
    return header, rows
