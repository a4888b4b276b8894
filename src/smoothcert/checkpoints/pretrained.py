"""Bundled pretrained models, named after their recipes."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

from smoothcert.errors import SmoothcertError, first_line, takes, unknown_name
from smoothcert.runtime.atomic_files import file_hash
from smoothcert.runtime.typed_files import Between, Count, read_json

if TYPE_CHECKING:
    from smoothcert.checkpoints.checkpoint import Checkpoint

FOLDER = Path(__file__).with_name("zoo")


class _Hashed(TypedDict):
    sha256: str


class Bundled(_Hashed, total=False):
    """The hash of a bundled model, its average certified radius, and the number of certified test images."""

    acr: Annotated[float, Between(0, 1e9)]
    images: Count


@takes(pattern=str)
def list_pretrained(pattern: str = "*") -> list[str]:
    """Return the names of the bundled pretrained models that match a pattern.

    Args:
        pattern: A glob pattern, such as `mnist-*`.

    Returns:
        The names in alphabetical order.

    Example:
        >>> list_pretrained("mnist-catrs-0.5*")
        ['mnist-catrs-0.50']
    """
    return [name for name in sorted(bundled_models()) if fnmatch(name, pattern)]


def bundled_models() -> dict[str, Bundled]:
    """Return hash, ACR and number of certified images of each bundled model, by name."""
    try:
        known: dict[str, Bundled] = read_json(FOLDER / "networks.json", dict[str, Bundled])
    except SmoothcertError as error:
        raise SmoothcertError(f"{first_line(error)}; install smoothcert again.") from error
    return known


def pretrained_path(name: str) -> Path:
    """Return the path of a bundled model after verifying its checksum."""
    known = bundled_models()
    if name not in known:
        raise unknown_name("pretrained model", name, known)
    path = FOLDER / f"{name}.safetensors"
    if not path.is_file() or file_hash(path) != known[name]["sha256"]:
        raise SmoothcertError(f"{path} is missing or damaged; install smoothcert again.")
    return path


@takes(name=str)
def load_pretrained(name: str) -> Checkpoint:
    """Load a bundled pretrained model.

    Args:
        name: A name from `list_pretrained`.

    Returns:
        The model with its metadata.

    Raises:
        SmoothcertError: If the file of the model is missing or damaged.
        UsageError: If there is no such model.

    Example:
        >>> load_pretrained("mnist-catrs-0.50").about["sigma"]
        0.5
    """
    from smoothcert.checkpoints.checkpoint import load_checkpoint

    return load_checkpoint(pretrained_path(name))
