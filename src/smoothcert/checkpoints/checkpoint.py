"""Checkpoints as self-contained safetensors files.

The header has the architecture, the number of classes and, if known, the dataset, noise level and training method. The
input normalization is stored as tensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from smoothcert.errors import SmoothcertError, UsageError, kind_of
from smoothcert.models import Classifier, create_model
from smoothcert.runtime.atomic_files import file_hash, replacing

_FORMAT = "smoothcert-1"


@dataclass(frozen=True)
class Checkpoint:
    """A model with its metadata.

    Attributes:
        model: The model.
        about: Metadata; may have the keys dataset, sigma, method and epoch.
        sha256: SHA-256 of the file that the model was loaded from, or empty.

    Example:
        >>> Checkpoint(create_model("lenet"), {"sigma": 0.25}).about["sigma"]
        0.25
    """

    model: Classifier
    about: Mapping[str, Any] = field(default_factory=dict)
    sha256: str = ""

    def describe(self) -> dict[str, Any]:
        """Return the description of the model for the settings of results files."""
        known = {key: self.about[key] for key in ("name", "method") if key in self.about}
        return {"sha256": self.sha256, "architecture": self.model.architecture, **known}


def save_checkpoint(path: str | Path, model: Classifier, **about: Any) -> None:
    """Save a model as a safetensors file, atomically.

    Args:
        path: The file to write.
        model: A model from `create_model`.
        **about: Metadata that can be stored as JSON, such as dataset, sigma, method and epoch.

    Raises:
        UsageError: If the model is not from `create_model`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_checkpoint(f"{folder}/lenet.safetensors", create_model("lenet"), sigma=0.25)
        ...     load_checkpoint(f"{folder}/lenet.safetensors").about
        {'sigma': 0.25}
    """
    if not isinstance(model, Classifier):
        raise UsageError(f"Expected `model` to be from `create_model`, but got {kind_of(model)}.")
    header = {
        "format": _FORMAT,
        "architecture": model.architecture,
        "num_classes": str(model.num_classes),
        "about": json.dumps(about),
    }
    write_tensors(Path(path), model.state_dict(), header)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: dict[str, str]) -> None:
    """Write a safetensors file atomically."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as part:
        try:
            save_file(plain, part, header)
        except SafetensorError as error:
            raise OSError(str(error)) from error
        _sort_metadata(part)


def _sort_metadata(path: Path) -> None:
    """Sort the header's entries, which safetensors does not, so that equal models give equal files."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        file.seek(8)
        file.write(text.ljust(size))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the header of a safetensors file."""
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118 (no mapping)


def load_checkpoint(
    path: str | Path, *, architecture: str | None = None, normalization: str | None = None
) -> Checkpoint:
    """Load a model from a smoothcert checkpoint, a run folder, or a published checkpoint.

    Only plain weights are read; files that would run code are rejected.

    Args:
        path: A file or a run folder.
        architecture: The expected architecture, if any.
        normalization: The input normalization of a published checkpoint, which its file does not contain: a key of
            `smoothcert.checkpoints.published.NORMALIZATIONS`.

    Returns:
        The model with its metadata and the SHA-256 of its file.

    Raises:
        SmoothcertError: If the file is missing, damaged or of an unknown architecture.
        UsageError: If the architecture differs, or `normalization` is missing, unknown or not applicable.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_checkpoint(f"{folder}/model.safetensors", create_model("lenet"))
        ...     load_checkpoint(folder).model.architecture
        'lenet'
    """
    path = Path(path)
    if path.is_dir():
        path = path / "model.safetensors"
    if not path.is_file():
        unfinished = path.with_name("state.safetensors").is_file()
        hint = "; the run is not finished, resume it with the same `smoothcert train` command" if unfinished else ""
        raise SmoothcertError(f"There is no checkpoint {path}{hint}.")
    if path.suffix != ".safetensors":
        from smoothcert.checkpoints.published import load_published

        model, about = load_published(path, normalization)
    elif normalization is None:
        model, about = _load(path)
    else:
        raise UsageError(f"{path} contains its normalization; omit `normalization`.")
    if architecture not in (None, model.architecture):
        raise UsageError(f"{path}: expected a {architecture}, but got a {model.architecture}.")
    return Checkpoint(model, about, file_hash(path))


def export_checkpoint(checkpoint: Checkpoint, path: str | Path) -> None:
    """Save a model in the format of the published repositories, for use with their code.

    Args:
        checkpoint: The model with its metadata.
        path: The file to write.

    Raises:
        UsageError: If the published code would normalize the inputs differently.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     export_checkpoint(Checkpoint(create_model("lenet"), {"epoch": 90}), f"{folder}/checkpoint.pth.tar")
        ...     load_checkpoint(f"{folder}/checkpoint.pth.tar").about
        {'epoch': 90}
    """
    from smoothcert.checkpoints.published import save_published

    save_published(Path(path), checkpoint.model, int(checkpoint.about.get("epoch", 0)))


def _load(path: Path) -> tuple[Classifier, Mapping[str, Any]]:
    try:
        weights, header = read_tensors(path)
    except (OSError, SafetensorError) as error:
        raise SmoothcertError(f"{path} is damaged or not a safetensors file ({error}).") from error
    if header.get("format") != _FORMAT:
        raise SmoothcertError(f"{path} was not written by smoothcert: its header does not describe a network.")
    try:
        channels = next(value for key, value in weights.items() if key.endswith("conv1.weight")).shape[1]
        mean, std = (weights[f"normalize.{key}"].tolist() for key in ("mean", "std"))
        name, classes = header["architecture"], int(header["num_classes"])
        about = dict(json.loads(header.get("about", "{}")))
    except (StopIteration, LookupError, TypeError, ValueError) as error:
        raise SmoothcertError(f"{path} is damaged: the description of its network is incomplete.") from error
    model = create_model(name, classes, in_channels=channels, mean=mean, std=std)
    fill(model, weights, path)
    return model, about


def fill(model: Classifier, weights: Mapping[str, Tensor], path: Path) -> None:
    """Load weights into a model; raise an error that names the first layers that do not match."""
    expected = model.state_dict()
    wrong = sorted(expected.keys() ^ weights.keys())
    wrong += [key for key in expected.keys() & weights.keys() if expected[key].shape != weights[key].shape]
    if wrong:
        raise SmoothcertError(f"{path} does not fit a {model.architecture}: {', '.join(wrong[:3])} differ.")
    model.load_state_dict(weights)
