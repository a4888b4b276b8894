"""Read and write checkpoints in the formats of published repositories for randomized smoothing.

These files contain the weights and sometimes the architecture's name and the epoch. The repositories
locuslab/smoothing, smoothing-adversarial and CAT-RS store weights under `state_dict`, with keys like `1.conv1.weight`
(the network is the second module of a Sequential). MACER stores them under `net`, without the prefix `1.`. None of
these formats contains the input normalization.
"""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smoothcert.checkpoints.checkpoint import fill
from smoothcert.data.registry import DATASETS, IMAGENET_NORMALIZATION
from smoothcert.errors import SmoothcertError, UsageError, unknown_name
from smoothcert.models import Classifier
from smoothcert.runtime.atomic_files import replacing
from smoothcert.runtime.bounded_files import check_members

Normalization = tuple[tuple[float, ...], tuple[float, ...]]
_UNIT_STD = (1.0, 1.0, 1.0)

NORMALIZATIONS: dict[str, Normalization | None] = {
    "none": None,
    "cifar10": (DATASETS["cifar10"].mean, DATASETS["cifar10"].std),
    "cifar10-center": (DATASETS["cifar10"].mean, _UNIT_STD),
    "cifar100": (DATASETS["cifar100"].mean, DATASETS["cifar100"].std),
    "imagenet": IMAGENET_NORMALIZATION,
    "imagenet-center": (IMAGENET_NORMALIZATION[0], _UNIT_STD),
}
"""Mean and standard deviation by name; `-center` only subtracts the mean, as most networks of Salman et al. do."""


def load_published(path: Path, normalization: str | None) -> tuple[Classifier, Mapping[str, Any]]:
    """Load a published checkpoint, and infer its architecture from the names and shapes of its layers."""
    content = _read(path)
    wrappers = r"^(module\.)?(1\.)?(module\.)?"  # the index in a Sequential, and DataParallel's `module`
    weights = {re.sub(wrappers, "", key): value for key, value in _weights_in(content, path).items()}
    _check_sizes(weights, path)
    name = _infer_architecture(weights)
    if name is None:
        layers = ", ".join(list(weights)[:4])
        hint = "load the model in Python and pass it to `SmoothedClassifier`"
        raise SmoothcertError(f"{path} has an unknown architecture (its layers: {layers}, ...); {hint}.")
    if normalization is None and name != "lenet":  # no published LeNet normalizes its inputs
        choices = ", ".join(NORMALIZATIONS)
        raise UsageError(f"{path} does not contain its input normalization; set `normalization` to one of {choices}.")
    if normalization not in (None, *NORMALIZATIONS):
        raise unknown_name("normalization", str(normalization), NORMALIZATIONS)
    head = weights["fc2.weight" if name == "lenet" else "fc.weight"]
    mean, std = _normalization(normalization or "none", weights["conv1.weight"].shape[1])
    own = {"normalize.mean": torch.tensor(mean), "normalize.std": torch.tensor(std)}
    model = fill(path, own | {f"network.{key}": value for key, value in weights.items()}, name, len(head))
    epoch = content.get("epoch")
    return model, {"epoch": epoch} if isinstance(epoch, int) and 0 <= epoch < 2**53 else {}


def _normalization(name: str, channels: int) -> Normalization:
    return NORMALIZATIONS[name] or ((0.0,) * channels, (1.0,) * channels)


def _weights_in(content: Any, path: Path) -> Mapping[str, Tensor]:
    table = content
    if isinstance(content, Mapping):
        table = next((content[key] for key in ("state_dict", "net", "model") if key in content), content)
    if not isinstance(table, Mapping) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in table.items()
    ):
        raise SmoothcertError(f"{path} has no weights under 'state_dict', 'net', 'model' or at the top level.")
    return table


def read_weights(path: Path) -> Mapping[str, Tensor]:
    """Read the weights of any network from a PyTorch file, keyed by name."""
    return _weights_in(_read(path), path)


def save_published(path: Path, model: Classifier, epoch: int) -> None:
    """Save a checkpoint for the published code.

    The format does not contain the normalization; the published code chooses it by architecture. A model with another
    normalization is rejected.
    """
    hundred = model.num_classes == 100 and model.architecture.startswith("cifar_")
    kind = {"lenet": "none", "resnet50": "imagenet"}.get(model.architecture, "cifar100" if hundred else "cifar10")
    mean, std = _normalization(kind, len(model.normalize.mean))
    own = torch.stack((model.normalize.mean, model.normalize.std)).cpu()
    if not torch.allclose(own, torch.tensor((mean, std))):
        raise UsageError(
            f"The published code normalizes inputs of a {model.architecture} with mean {mean} and std {std}, but this "
            f"model has {own[0].tolist()} and {own[1].tolist()}, which the published format cannot store."
        )
    prefix = "1.module." if model.architecture == "resnet50" else "1."
    weights = {prefix + key: value.cpu().contiguous() for key, value in model.network.state_dict().items()}
    name = model.architecture.replace("cifar_", "cifar100_") if hundred else model.architecture
    with replacing(path) as part:
        try:
            torch.save({"epoch": epoch, "arch": name, "state_dict": weights, "optimizer": {}}, part)
        except RuntimeError as error:
            raise OSError(str(error)) from error


def _infer_architecture(weights: Mapping[str, Tensor]) -> str | None:
    """Return the architecture whose layers have these names and shapes, or None if it is unknown."""
    dimensions = {key: value.dim() for key, value in weights.items()}
    if dimensions.get("conv1.weight") != 4:
        return None
    if dimensions.get("fc2.weight") == 2 and tuple(weights["conv1.weight"].shape[2:]) == (5, 5):
        return "lenet"
    blocks = {int(match[1]) for key in weights if (match := re.match(r"layer3\.(\d+)\.", key))}
    if not blocks or dimensions.get("fc.weight") != 2:
        return None
    if "layer1.0.conv3.weight" in weights:
        return "resnet50" if len(blocks) == 6 else None
    return f"cifar_resnet{6 * len(blocks) + 2}"


def _read(path: Path) -> Any:
    if zipfile.is_zipfile(path):
        check_members(path, compressed=False)  # PyTorch does not compress the members
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise SmoothcertError(
            f"{path} is damaged, or would run code when opened; only files with plain weights are read."
        ) from error
    except Exception as error:  # a damaged file can raise anything; the message may advise unsafe loading
        raise SmoothcertError(f"{path} is damaged or not a checkpoint ({type(error).__name__}).") from error


def _check_sizes(weights: Mapping[str, Tensor], path: Path) -> None:
    """Raise if the weights are larger than the file, for example because they are views that repeat one value."""
    if sum(value.numel() * value.element_size() for value in weights.values()) > path.stat().st_size:
        raise SmoothcertError(f"{path} is damaged: its weights are larger than the file.")
