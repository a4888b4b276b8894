"""Weights on disk: safetensors files that carry what is needed to use them.

Architecture and number of classes stand in the header, the normalisation among the tensors, and, where known, the
data set, noise level and training method beside them.
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

from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.models import Classifier, create_model
from smoothcert.runtime.atomic_files import file_hash, replacing

_FORMAT = "smoothcert-1"


@dataclass(frozen=True)
class Checkpoint:
    """A network with what is known of it: `about` may hold dataset, sigma, method, epoch."""

    model: Classifier
    about: Mapping[str, Any] = field(default_factory=dict)
    sha256: str = ""

    def describe(self) -> dict[str, Any]:
        """Return what the sidecar of its results says of it."""
        known = {key: self.about[key] for key in ("name", "method") if key in self.about}
        return {"sha256": self.sha256, "architecture": self.model.architecture, **known}


def save_checkpoint(path: str | Path, model: Classifier, **about: Any) -> None:
    """Write a network; the file appears under its name only when whole."""
    if not isinstance(model, Classifier):
        raise UsageError(f"Only networks of `create_model` can be saved, but got a {type(model).__name__}.")
    header = {
        "format": _FORMAT,
        "architecture": model.architecture,
        "num_classes": str(model.num_classes),
        "about": json.dumps(about),
    }
    write_tensors(Path(path), model.state_dict(), header)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: dict[str, str]) -> None:
    """Write a safetensors file, whole or not at all."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as part:
        try:
            save_file(plain, part, header)
        except SafetensorError as error:
            raise OSError(str(error)) from error
        _sort_metadata(part)


def _sort_metadata(path: Path) -> None:
    """Give a header's entries one order, which safetensors does not: the same network is then the same file."""
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
    """Read a network: a file or run folder of ours, or a published checkpoint.

    A published checkpoint does not say how its inputs are normalised: `normalization` names it (see
    `smoothcert.checkpoints.published.NORMALIZATIONS`). Only plain weights are read; a file that wants to run code is
    refused.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "model.safetensors"
    if not path.is_file():
        begun = path.with_name("state.safetensors").is_file()
        hint = "; the run is not finished, and the same `smoothcert train` goes on with it" if begun else ""
        raise SmoothcertError(f"There is no checkpoint {path}{hint}.")
    if path.suffix != ".safetensors":
        from smoothcert.checkpoints.published import load_published

        model, about = load_published(path, normalization)
    elif normalization is None:
        model, about = _load(path)
    else:
        raise UsageError(f"{path} stores its own normalisation; leave `--normalization` away.")
    if architecture not in (None, model.architecture):
        raise UsageError(f"{path} holds a {model.architecture}, not a {architecture}.")
    return Checkpoint(model, about, file_hash(path))


def export_checkpoint(checkpoint: Checkpoint, path: str | Path) -> None:
    """Write a network in the published repositories' format, for their code to read."""
    from smoothcert.checkpoints.published import save_published

    save_published(Path(path), checkpoint.model, int(checkpoint.about.get("epoch", 0)))


def _load(path: Path) -> tuple[Classifier, Mapping[str, Any]]:
    try:
        weights, header = read_tensors(path)
    except (OSError, SafetensorError) as error:
        raise SmoothcertError(f"{path} is damaged or no safetensors file ({error}).") from error
    if header.get("format") != _FORMAT:
        raise SmoothcertError(f"{path} was not written by smoothcert: its header does not say which network it holds.")
    try:
        channels = next(value for key, value in weights.items() if key.endswith("conv1.weight")).shape[1]
        mean, std = (weights[f"normalize.{key}"].tolist() for key in ("mean", "std"))
        name, classes = header["architecture"], int(header["num_classes"])
        about = dict(json.loads(header.get("about", "{}")))
    except (StopIteration, LookupError, TypeError, ValueError) as error:
        raise SmoothcertError(f"{path} is damaged: it does not say in full which network it holds.") from error
    model = create_model(name, classes, in_channels=channels, mean=mean, std=std)
    fill(model, weights, path)
    return model, about


def fill(model: Classifier, weights: Mapping[str, Tensor], path: Path) -> None:
    """Load weights into a network, or name the first layers that do not fit."""
    expected = model.state_dict()
    wrong = sorted(expected.keys() ^ weights.keys())
    wrong += [key for key in expected.keys() & weights.keys() if expected[key].shape != weights[key].shape]
    if wrong:
        raise SmoothcertError(f"{path} does not fit a {model.architecture}: {', '.join(wrong[:3])} differ.")
    model.load_state_dict(weights)
