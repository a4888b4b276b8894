"""Load and hash the initial weights of a run, if they are not random."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from torch import Tensor, nn

from smoothcert.checkpoints.checkpoint import load_weights
from smoothcert.checkpoints.pretrained import list_pretrained, pretrained_path
from smoothcert.checkpoints.published import read_weights
from smoothcert.checkpoints.tensor_files import hash_tensors, read_tensors
from smoothcert.errors import SmoothcertError, first_line, suggest
from smoothcert.models import NamedModel, UserModel

_WRAPPERS = ("module.", "_orig_mod.")


def hash_initial_weights(source: str) -> str:
    """Return the SHA-256 of the weights in `source` (see `load_initial_weights`), or "" if there is no such file."""
    path = _path_of(source)
    return hash_tensors(_read(path)) if path.is_file() else ""


def load_initial_weights(model: NamedModel, source: str) -> None:
    """Load initial weights into a network. `source` is a run folder, a file or the name of a bundled model."""
    path = _path_of(source)
    if not path.is_file():
        near = suggest(source, list_pretrained())
        raise SmoothcertError(
            "Expected `init` to be the folder of a finished run, a weights file or a bundled model, "
            f"but got {source}{near}"
        )
    network = model.network if isinstance(model, UserModel) else model
    load_weights(network, _unwrapped(_read(path), network), str(path), model.architecture)


def _path_of(source: str) -> Path:
    path = pretrained_path(source) if source in list_pretrained() else Path(source).expanduser()
    return path / "model.safetensors" if path.is_dir() else path


def _read(path: Path) -> Mapping[str, Tensor]:
    try:
        return read_tensors(path)[0] if path.suffix == ".safetensors" else read_weights(path)
    except (OSError, SafetensorError) as error:
        text = f"but {path} is damaged or cannot be read ({first_line(error)})"
        raise SmoothcertError(f"Expected `init` to be a readable weights file, {text}.") from error


def _unwrapped(weights: Mapping[str, Tensor], network: nn.Module) -> Mapping[str, Tensor]:
    """Remove name prefixes added by `DataParallel` and `torch.compile`, unless the network's own names have them."""
    own = network.state_dict().keys()
    for prefix in (*_WRAPPERS, *_WRAPPERS):  # twice, because they may be nested in either order
        if weights.keys() != own and all(key.startswith(prefix) for key in weights):
            weights = {key.removeprefix(prefix): value for key, value in weights.items()}
    return weights
