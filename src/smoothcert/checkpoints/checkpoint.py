"""Checkpoints: safetensors files with the weights of a model and a description of it; see docs/formats.md."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from smoothcert.checkpoints.tensor_files import read_tensors, write_tensors
from smoothcert.errors import SmoothcertError, UsageError, first_line, kind_of, takes
from smoothcert.model_names import REGISTERED
from smoothcert.models import Classifier, Factory, NamedModel, UserModel, as_factory, build_user_model, create_model
from smoothcert.runtime.atomic_files import file_hash
from smoothcert.runtime.typed_files import Between, Count, Index, Positive, check_type, parse_json

_FORMAT = "smoothcert-1"
_INPUT_SHAPE, _DATA_CLASSES = "input_shape", "data_classes"  # in the headers of users' own networks only


@dataclass(frozen=True)
class Checkpoint:
    """A model with its metadata.

    Attributes:
        model: The model; its attribute `network` is the network without input normalization or shape check.
        about: Metadata, with keys such as name, dataset, sigma, method and epoch.
        sha256: SHA-256 of the file that the model was loaded from, or empty.
    """

    model: NamedModel
    about: Mapping[str, Any] = field(default_factory=dict)
    sha256: str = ""

    def describe(self) -> dict[str, Any]:
        """Return the description of the model for the sidecar of a results file."""
        known = {key: self.about[key] for key in ("name", "method") if key in self.about}
        return {"sha256": self.sha256, "architecture": self.model.architecture, **known}


@takes(path=(str, Path))
def save_checkpoint(path: str | Path, model: NamedModel, **about: Any) -> None:
    """Save a model as a safetensors file, atomically.

    Args:
        path: The file to write.
        model: A model from `create_model`, `train` or `load_checkpoint`.
        **about: Metadata that can be stored as JSON, such as dataset, sigma, method and epoch.

    Raises:
        UsageError: If the model is not from one of these functions, or the metadata cannot be stored as JSON.
        SmoothcertError: If a metadata entry has an invalid type or value.

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
        raise UsageError(f"Expected the metadata to be storable as JSON, but {first_line(error)}.") from None
    check_type(about, About, "the metadata")
    if not isinstance(model, NamedModel):
        sources = "`create_model`, `train` or `load_checkpoint`"
        raise UsageError(f"Expected `model` to come from {sources}, but got {kind_of(model)}.")
    header = {
        "format": _FORMAT,
        "architecture": model.architecture,
        "num_classes": str(model.num_classes),
        "about": text,
    }
    stored: nn.Module = model
    if isinstance(model, UserModel):
        header |= {_INPUT_SHAPE: json.dumps(list(model.input_shape)), _DATA_CLASSES: str(model.data_classes)}
        stored = model.network
    write_tensors(Path(path), stored.state_dict(), header)


@takes(path=(str, Path), architecture=(str, type(None)), normalization=(str, type(None)))
def load_checkpoint(
    path: str | Path,
    *,
    model: nn.Module | Callable[..., nn.Module] | None = None,
    architecture: str | None = None,
    normalization: str | None = None,
) -> Checkpoint:
    """Load a model from a smoothcert checkpoint, a run folder, or a published checkpoint.

    Only plain weights are read; files that would run code are rejected.

    Args:
        path: A file or a run folder.
        model: For a file with weights of your own network: a function that creates the network, or a module, which is
            copied before the weights are loaded. Not needed if the architecture is registered (see `register_model`).
        architecture: The expected architecture, if any.
        normalization: A key of `smoothcert.checkpoints.published.NORMALIZATIONS`. Only for published checkpoints, whose
            files do not contain the input normalization.

    Returns:
        The model with its metadata and the SHA-256 of its file.

    Raises:
        SmoothcertError: If the file is missing, damaged or of an unknown architecture.
        UsageError: If the architecture differs, or `model` or `normalization` is missing, unknown or not applicable.

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
        hint = " The run is not finished; resume it with the same `smoothcert train` command." if unfinished else ""
        raise SmoothcertError(f"There is no checkpoint {path}.{hint}")
    if path.suffix != ".safetensors":
        from smoothcert.checkpoints.published import load_published

        if model is not None:
            raise UsageError(
                f"With `model`, expected a .safetensors file written by smoothcert, but got {path}; omit `model` to "
                "load a published checkpoint, or load other weights with your network's `load_state_dict`."
            )
        loaded: NamedModel
        loaded, about = load_published(path, normalization)
    elif normalization is None:
        loaded, about = _load(path, model)
    else:
        raise UsageError(f"{path} contains its normalization; omit `normalization`.")
    if architecture not in (None, loaded.architecture):
        raise UsageError(f"{path}: expected architecture {architecture}, but got {loaded.architecture}.")
    return Checkpoint(loaded, about, file_hash(path))


@takes(checkpoint=Checkpoint, path=(str, Path))
def export_checkpoint(checkpoint: Checkpoint, path: str | Path) -> None:
    """Save a model in the format of published repositories such as locuslab/smoothing, for use with their code.

    Args:
        checkpoint: The model with its metadata.
        path: The file to write.

    Raises:
        UsageError: If the model is not a network from `create_model`, or the published code would normalize its inputs
            differently.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     export_checkpoint(Checkpoint(create_model("lenet"), {"epoch": 90}), f"{folder}/checkpoint.pth.tar")
        ...     load_checkpoint(f"{folder}/checkpoint.pth.tar").about
        {'epoch': 90}
    """
    from smoothcert.checkpoints.published import save_published

    if not isinstance(checkpoint.model, Classifier):
        expected = "a network from `create_model` (the published code supports no others)"
        raise UsageError(f"Expected `checkpoint` to contain {expected}, but got {checkpoint.model.architecture}.")
    save_published(Path(path), checkpoint.model, int(checkpoint.about.get("epoch", 0)))


class About(TypedDict, total=False):
    """The metadata of a checkpoint; users may add other entries."""

    name: str
    dataset: str
    sigma: Positive
    method: str
    epoch: Index
    seed: Index


def find_own_factory(path: Path, default: Factory | None) -> Factory | None:
    """Return the registered function that creates the user's network in a checkpoint or run folder.

    Return `default` if none is registered, and None if the network is built in or the file cannot be read.
    """
    file = path / "model.safetensors" if path.is_dir() else path
    try:
        with safe_open(file, framework="pt") as content:
            header = content.metadata() or {}
    except (OSError, SafetensorError):  # loading the file will raise a more specific error
        return None
    return REGISTERED.get(header.get("architecture", ""), default) if _INPUT_SHAPE in header else None


def _load(path: Path, own: Any) -> tuple[NamedModel, Mapping[str, Any]]:
    try:
        weights, header = read_tensors(path)
    except (OSError, SafetensorError) as error:
        raise SmoothcertError(f"{path} is damaged or not a safetensors file ({first_line(error)}).") from error
    if header.get("format") != _FORMAT:
        raise SmoothcertError(f"{path} is not a smoothcert checkpoint: its header does not describe a network.")
    classes = header.get("num_classes", "")
    if "architecture" not in header or not classes.isdecimal() or len(classes) > 9:
        raise SmoothcertError(f"{path} is damaged: the description of its network is incomplete.")
    about = parse_json(header.get("about", "{}"), About, f"{path}, `about`")
    name = header["architecture"]
    if _INPUT_SHAPE in header:
        shape = parse_json(header[_INPUT_SHAPE], list[Count], f"{path}, `{_INPUT_SHAPE}`")
        given = parse_json(header.get(_DATA_CLASSES, ""), Annotated[int, Between(1, 1e9)], f"{path}, `{_DATA_CLASSES}`")
        return _load_own(path, weights, name, given, shape, own), about
    if own is not None:
        raise UsageError(f"{path} contains the built-in network {name}; omit `model`.")
    return fill(path, weights, name, int(classes)), about


def _load_own(
    path: Path, weights: Mapping[str, Tensor], name: str, classes: int, shape: list[int], own: Any
) -> UserModel:
    factory = REGISTERED.get(name) if own is None else as_factory(own)
    if factory is None:
        raise UsageError(
            f"{path} contains the weights of your own network {name}; set `model` to the function that creates the "
            f"network or, on the command line, `plugin` to a Python file that registers it under the name {name!r}."
        )
    with torch.random.fork_rng(devices=[]):  # drawing the initial weights must not affect later random numbers
        model = build_user_model(factory, shape, classes, name=name)
    load_weights(model.network, weights, str(path), name)
    return model


def load_weights(network: nn.Module, weights: Mapping[str, Tensor], where: str, name: str) -> None:
    """Load weights into a network; if they do not match, raise an error that names the first mismatched tensors."""
    expected = network.state_dict()
    wrong = sorted(expected.keys() ^ weights.keys())
    wrong += [key for key in expected.keys() & weights.keys() if expected[key].shape != weights[key].shape]
    if wrong:
        tensors = ", ".join(wrong[:3])
        raise SmoothcertError(
            f"{where} does not match {name}: these tensors are missing, unexpected or have another shape: {tensors}."
        )
    network.load_state_dict(weights)


def fill(path: Path, weights: Mapping[str, Tensor], name: str, classes: int) -> Classifier:
    """Create a model and load its weights; if they do not match, raise an error that names the first such tensors.

    A damaged file may state huge numbers of classes, channels or layers, so these are checked before a model is built.
    """
    values = [weights[key] for key in ("normalize.mean", "normalize.std") if key in weights]
    if len(values) != 2 or any(value.dim() != 1 or not value.isfinite().all() for value in values):
        raise SmoothcertError(f"{path} is damaged: expected `mean` and `std` to be one finite number per channel.")
    mean, std = (value.tolist() for value in values)
    depth = re.fullmatch(r"cifar_resnet(\d{1,9})", name)
    first = [value for key, value in weights.items() if key.endswith("conv1.weight") and value.dim() == 4]
    last = [value for value in weights.values() if value.dim() == 2 and len(value) == classes]
    too_deep = depth is not None and int(depth[1]) > len(weights)
    if too_deep or not (first and last and first[0].numel() and last[0].numel()):
        raise SmoothcertError(f"{path} does not match {name}: its first or last layer or its number of layers differs.")
    model = create_model(name, classes, in_channels=first[0].shape[1], mean=mean, std=std)
    load_weights(model, weights, str(path), name)
    return model
