"""Joining the results of shards: files made with the same settings on different images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.results.look_store import check_new, looks_path
from smoothcert.results.reader import counts_path, read_sidecar, sidecar_path, write_sidecar
from smoothcert.runtime.atomic_files import write_text


def merge_results(files: Sequence[Path], out: Path) -> int:
    """Write one results file, ordered by image, from several; return the number of images."""
    check_new(out)
    for path in files:
        if not path.is_file():
            raise SmoothcertError(f"There is no results file {path}.")
    abouts = [read_sidecar(sidecar_path(path)) for path in files]
    settings = [{**about["settings"], "images": None} for about in abouts]
    for path, other in zip(files, settings, strict=True):
        changed = sorted(key for key in {*other, *settings[0]} if other.get(key) != settings[0].get(key))
        if changed:
            raise UsageError(f"{path} was made with other settings than {files[0]}: {', '.join(changed)}.")
    headers, rows = _join(files)
    count_headers, counts = _join([counts_path(path) for path in files])
    images = [about["settings"]["images"] for about in abouts]
    asked = len(images_of(images))
    if rows.keys() != counts.keys() or len(rows) != asked:
        text = f"{len(rows):,} rows and {len(counts):,} counts of {asked:,} images"
        raise SmoothcertError(f"The files hold {text}; finish each shard before joining them.")
    about: dict[str, Any] = {"settings": {**settings[0], "images": images}}
    about["segments"] = [segment for part in abouts for segment in part["segments"]]
    if "stop" in settings[0]:  # certified sequentially: the votes of every look belong to it
        about["samples"] = sum(part.get("samples", 0) for part in abouts)
        look_headers, looks = _join([looks_path(path) for path in files], several=True)
        write_text(looks_path(out), look_headers + "".join(looks[index] for index in sorted(looks)))
    write_sidecar(out, about)
    write_text(counts_path(out), count_headers + "".join(counts[index] for index in sorted(counts)))
    write_text(out, headers + "".join(rows[index] for index in sorted(rows)))
    return len(rows)


def images_of(named: Any) -> list[int]:
    """Return the images that a sidecar names: as start:stop:step, as a list, or as those of files joined before.

    >>> images_of(["0:6:2", [7, 9]])
    [0, 2, 4, 7, 9]
    """
    if isinstance(named, str):
        return list(range(*map(int, named.split(":"))))
    return [image for part in named for image in ([part] if isinstance(part, int) else images_of(part))]


def _join(files: Sequence[Path], *, several: bool = False) -> tuple[str, dict[int, str]]:
    """Return the header that all files share, and the row of each image, or with `several` its rows."""
    header, rows = "", dict[int, str]()
    for path in files:
        try:
            first, *lines = path.read_text().splitlines(keepends=True) or [""]
        except (OSError, ValueError) as error:
            raise SmoothcertError(f"{path} cannot be read ({error}).") from error
        if not [first, *lines][-1].endswith("\n"):
            raise SmoothcertError(f"{path} ends within a row; finish each shard before joining them.")
        if header not in ("", first):
            raise UsageError(f"{path} has other columns than {files[0]}.")
        header, own = first, dict[int, str]()
        for line in lines:
            index = int(line.split("\t", 1)[0])
            if index in rows or (index in own and not several):
                raise UsageError(f"Image {index} stands in two files; the second is {path}.")
            own[index] = own.get(index, "") + line
        rows |= own
    return header, rows
