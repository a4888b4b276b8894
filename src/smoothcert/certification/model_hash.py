"""What a network is known by: a hash of all that can be read of what its answers depend on.

That is its weights and buffers, those outside `state_dict` too, and the kind and settings of every module: the same
weights behind another activation, stride or normalisation are another network. Functions and hooks are known by their
names alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.errors import UsageError, first_line

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype)


def network_hash(network: nn.Module) -> str:
    """Return the hash of a network; refuse one whose weights cannot be read."""
    digest = hashlib.sha256()
    try:
        for part in _network(network, set()):
            digest.update(len(part).to_bytes(8, "little") + part)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(
            f"The network's weights cannot be read ({first_line(error)}), so no file could tell it from another: say "
            "which it is, as in `model={'sha256': ...}`, and call it once before if its layers are lazy."
        ) from error
    return digest.hexdigest()


def _network(network: nn.Module, seen: set[int]) -> Iterator[bytes]:
    for name, module in network.named_modules():
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield from (name.encode(), type(module).__qualname__.encode())
        if isinstance(module, torch.jit.ScriptModule):
            yield from _scripted(module, seen)
            continue
        if isinstance(module, torch.fx.GraphModule):
            yield module.code.encode()
        for key, value in sorted(vars(module).items()):
            if key not in _OF_EVERY_MODULE:
                yield from _named(key, value, seen)
        for key in _HOOKS:
            yield from _spelled(list(vars(module).get(key, {}).values()), seen)
    state = {**dict(network.named_buffers()), **network.state_dict()}
    for key, value in state.items():
        yield from _named(key, value, seen)


def _scripted(module: torch.jit.ScriptModule, seen: set[int]) -> Iterator[bytes]:
    """Spell out the code of what was scripted or traced, and the settings that it reads."""
    code = ""
    with suppress(AttributeError, RuntimeError):  # a part that is never called has none
        code = module.code
    yield code.encode()
    for key in re.findall(r"= \w+\.(\w+)$", code, re.MULTILINE):
        yield from _named(key, getattr(module, key, None), seen)


def _named(key: str, value: Any, seen: set[int]) -> Iterator[bytes]:
    yield key.encode()
    yield from _spelled(value, seen)


def _spelled(value: Any, seen: set[int]) -> Iterator[bytes]:
    """Spell out a setting: numbers and texts as they are, tensors by their bytes, other objects by their names."""
    if isinstance(value, Tensor):
        yield from _bytes_of(value, seen)
    elif isinstance(value, nn.Module):  # in a plain list, where `state_dict` does not see it
        yield from _network(value, seen)
    elif isinstance(value, _PLAIN):
        yield repr(value).encode()
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _named(str(key), item, seen)
    elif isinstance(value, list | tuple):
        yield str(len(value)).encode()
        for item in value:
            yield from _spelled(item, seen)
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield from (f"{value.dtype} {value.shape}".encode(), value.tobytes())
    elif isinstance(value, torch.ScriptObject):  # the packed weights of quantised layers
        yield from _spelled(value.__getstate__(), seen)
    else:
        yield str(getattr(value, "__qualname__", type(value).__qualname__)).encode()


def _bytes_of(tensor: Tensor, seen: set[int]) -> Iterator[bytes]:
    if hasattr(tensor, "__tensor_flatten__"):  # a tensor made of others, as of quantised weights
        names, context = tensor.__tensor_flatten__()
        yield from _spelled(context, seen)
        for name in names:
            yield from _bytes_of(getattr(tensor, name), seen)
        return
    values = tensor.detach().cpu()
    yield f"{values.dtype} {list(values.shape)}".encode()
    if values.is_quantized:
        if values.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            yield repr((values.q_scale(), values.q_zero_point())).encode()
        else:
            for scales in (values.q_per_channel_scales(), values.q_per_channel_zero_points()):
                yield from _bytes_of(scales, seen)
        values = values.int_repr()
    if values.layout != torch.strided:
        values = values.to_dense()
    plain = values.resolve_conj().resolve_neg().contiguous().reshape(-1)
    yield plain.view(torch.uint8).numpy().tobytes()
