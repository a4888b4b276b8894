"""Read, write and hash tensors; files are in safetensors format."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from smoothcert.runtime.atomic_files import replacing


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: dict[str, str], keep: Path | None = None) -> None:
    """Write a safetensors file atomically; with `keep`, an existing file is first renamed to `keep`."""
    plain = _apart({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    with replacing(path, keep) as part:
        try:
            save_file(plain, part, header)
        except SafetensorError as error:
            raise OSError(str(error)) from error
        _sort_metadata(part)


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors that share memory, since safetensors rejects them; tied weights are written under each name."""
    seen, apart = set[int](), dict[str, Tensor]()
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if tensor.numel() and place in seen else tensor
        seen.add(place)
    return apart


def _sort_metadata(path: Path) -> None:
    """Sort the header's metadata, since safetensors does not, so that equal models give equal files."""
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
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118 (not a dict)


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of the names, types, shapes and values of tensors."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
