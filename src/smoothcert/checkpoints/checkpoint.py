"""Checkpoints as self-contained safetensors files.

The header has the architecture, the number of classes and, if known, the dataset, noise level and training method. The
input normalization is stored as tensors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from safetensors import SafetensorError
from torch import Tensor

from smoothcert.checkpoints.tensor_files import read_tensors, write_tensors
from smoothcert.errors import SmoothcertError, UsageError, first_line, kind_of
from smoothcert.models import Classifier, create_model
from smoothcert.runtime.atomic_files import file_hash
from smoothcert.runtime.typed_files import Index, Positive, check_type, parse_json

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
    try:
        text = json.dumps(about)
    except (TypeError, ValueError) as error:
        raise UsageError(f"Expected metadata that can be stored as JSON ({first_line(error)}).") from None
    check_type(about, About, "the metadata")
    if not isinstance(model, Classifier):
        raise UsageError(f"Expected `model` to be from `create_model`, but got {kind_of(model)}.")
    header = {
        "format": _FORMAT,
        "architecture": model.architecture,
        "num_classes": str(model.num_classes),
        "about": text,
    }
    write_tensors(Path(path), model.state_dict(), header)


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


class About(TypedDict, total=False):
    """The metadata of a checkpoint, and whatever else its maker adds."""

    name: str
    dataset: str
    sigma: Positive
    method: str
    epoch: Index
    seed: Index


def _load(path: Path) -> tuple[Classifier, Mapping[str, Any]]:
    try:
        weights, header = read_tensors(path)
    except (OSError, SafetensorError) as error:
        raise SmoothcertError(f"{path} is damaged or not a safetensors file ({first_line(error)}).") from error
    if header.get("format") != _FORMAT:
        raise SmoothcertError(f"{path} was not written by smoothcert: its header does not describe a network.")
    classes = header.get("num_classes", "")
    if "architecture" not in header or not classes.isdecimal() or len(classes) > 9:
        raise SmoothcertError(f"{path} is damaged: the description of its network is incomplete.")
    values = [weights[key] for key in ("normalize.mean", "normalize.std") if key in weights]
    if len(values) != 2 or any(value.dim() != 1 or not value.isfinite().all() for value in values):
        raise SmoothcertError(f"{path} is damaged: expected `mean` and `std` to be one number per channel.")
    about = parse_json(header.get("about", "{}"), About, f"{path}, `about`")
    mean, std = (value.tolist() for value in values)
    return fill(path, weights, header["architecture"], int(classes), mean=mean, std=std), about


def fill(path: Path, weights: Mapping[str, Tensor], name: str, classes: int, **options: Any) -> Classifier:
    """Return a model with these weights; raise an error that names the first layers that do not fit.

    The sizes that can be chosen freely, the classes, channels and depth, are compared before a model of them is built.
    """
    depth = re.fullmatch(r"cifar_resnet(\d{1,9})", name)
    first = [value for key, value in weights.items() if key.endswith("conv1.weight") and value.dim() == 4]
    last = [value for value in weights.values() if value.dim() == 2 and len(value) == classes]
    too_deep = depth is not None and int(depth[1]) > len(weights)
    if too_deep or not (first and last and first[0].numel() and last[0].numel()):
        raise SmoothcertError(f"{path} does not fit a {name}: its first or last layer or its number of layers differ.")
    model = create_model(name, classes, in_channels=first[0].shape[1], **options)
    expected = model.state_dict()
    wrong = sorted(expected.keys() ^ weights.keys())
    wrong += [key for key in expected.keys() & weights.keys() if expected[key].shape != weights[key].shape]
    if wrong:
        raise SmoothcertError(f"{path} does not fit a {name}: {', '.join(wrong[:3])} differ.")
    model.load_state_dict(weights)
    return model
