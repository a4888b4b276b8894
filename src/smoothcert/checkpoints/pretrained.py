"""The networks of ours that come with the package, by the names of their recipes."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from pathlib import Path

from smoothcert.checkpoints.checkpoint import Checkpoint, load_checkpoint
from smoothcert.errors import SmoothcertError, first_line, unknown_name
from smoothcert.runtime.atomic_files import file_hash

FOLDER = Path(__file__).with_name("zoo")


def list_pretrained(pattern: str = "*") -> list[str]:
    """Return the names of the networks that match a glob.

    >>> list_pretrained("mnist-catrs-0.5*")
    ['mnist-catrs-0.50']
    """
    return [name for name in sorted(checksums()) if fnmatch(name, pattern)]


def checksums() -> dict[str, str]:
    """Return the SHA-256 of every network."""
    path = FOLDER / "checksums.json"
    try:
        known: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SmoothcertError(f"{path} cannot be read ({first_line(error)}); install smoothcert again.") from error
    return known


def pretrained_path(name: str) -> Path:
    """Return a network's file, after a look at its checksum."""
    known = checksums()
    if name not in known:
        raise unknown_name("pretrained network", name, known)
    path = FOLDER / f"{name}.safetensors"
    if not path.is_file() or file_hash(path) != known[name]:
        raise SmoothcertError(f"{path} is not the network it should be; install smoothcert again.")
    return path


def load_pretrained(name: str) -> Checkpoint:
    """Load a network of ours, with what is known of its training."""
    return load_checkpoint(pretrained_path(name))
