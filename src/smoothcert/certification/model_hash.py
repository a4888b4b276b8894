"""Fingerprint a model: SHA-256 of its weights, buffers and module settings.

Settings are included because the same weights with a different activation, stride or normalization are a different
model. Buffers outside `state_dict` are included as well. Functions, hooks and other objects are included by name only.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.errors import UsageError, first_line

_COMMON_ATTRIBUTES = frozenset(vars(nn.Module()))
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype)


def fingerprint_model(model: nn.Module, *, values: bool = True) -> str:
    """Return the fingerprint of a model; raise if its weights cannot be read.

    Without `values`, tensors contribute only their dtypes and shapes.
    """
    fingerprint = _Fingerprint(values)
    try:
        fingerprint.add(model)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(
            f"The model's weights cannot be read ({first_line(error)}); pass `model={{'sha256': ...}}` to identify "
            "the model, or, if it has lazy layers, call it once first."
        ) from error
    return fingerprint.sha256.hexdigest()


class _Fingerprint:
    """SHA-256 of nested values: numbers and strings by `repr`, tensors by their bytes, other objects by name."""

    def __init__(self, values: bool) -> None:
        self.sha256, self._seen, self._values = hashlib.sha256(), set[int](), values

    def _feed(self, *chunks: str | bytes) -> None:
        for chunk in chunks:
            data = chunk.encode() if isinstance(chunk, str) else chunk
            self.sha256.update(len(data).to_bytes(8, "little") + data)

    def add(self, value: Any) -> None:
        """Add a value, including all nested values, to the hash."""
        if isinstance(value, Tensor):
            self._add_tensor(value)
        elif isinstance(value, nn.Module):
            self._add_model(value)
        elif isinstance(value, _PLAIN):
            self._feed(repr(value))
        elif isinstance(value, Mapping):
            for key, item in value.items():
                self._feed(str(key))
                self.add(item)
        elif isinstance(value, list | tuple):
            self._feed(str(len(value)))
            for item in value:
                self.add(item)
        elif isinstance(value, np.ndarray) and value.dtype != object:
            self._feed(f"{value.dtype} {value.shape}", value.tobytes())
        elif isinstance(value, torch.ScriptObject):  # packed weights of a quantized layer
            self.add(value.__getstate__())
        else:
            self._feed(str(getattr(value, "__qualname__", type(value).__qualname__)))

    def _add_model(self, model: nn.Module) -> None:
        for name, module in model.named_modules():
            if id(module) not in self._seen:
                self._seen.add(id(module))
                self._feed(name, type(module).__qualname__)
                self._add_settings(module)
        self.add({**dict(model.named_buffers()), **model.state_dict()})

    def _add_settings(self, module: nn.Module) -> None:
        if isinstance(module, torch.jit.ScriptModule):
            code = getattr(module, "code", "")  # missing if a submodule is never called
            self._feed(code)
            for key in re.findall(r"= \w+\.(\w+)$", code, re.MULTILINE):  # the attributes that the code reads
                self.add({key: getattr(module, key, None)})
            return
        if isinstance(module, torch.fx.GraphModule):
            self._feed(module.code)
        attributes = vars(module)
        self.add({key: attributes[key] for key in sorted(attributes.keys() - _COMMON_ATTRIBUTES)})
        for hooks in ("_forward_pre_hooks", "_forward_hooks"):
            self.add(list(attributes.get(hooks, {}).values()))

    def _add_tensor(self, tensor: Tensor) -> None:
        if not self._values:
            self._feed(f"{tensor.dtype} {list(tensor.shape)}")
            return
        if hasattr(tensor, "__tensor_flatten__"):  # a subclass that wraps other tensors
            names, context = tensor.__tensor_flatten__()
            self.add(context)
            for name in names:
                self._add_tensor(getattr(tensor, name))
            return
        values = tensor.detach().cpu()
        self._feed(f"{values.dtype} {list(values.shape)}")
        if values.is_quantized:
            if values.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
                self._feed(repr((values.q_scale(), values.q_zero_point())))
            else:
                self._add_tensor(values.q_per_channel_scales())
                self._add_tensor(values.q_per_channel_zero_points())
            values = values.int_repr()
        flat = values.to_dense().resolve_conj().resolve_neg().contiguous().reshape(-1)
        self._feed(flat.view(torch.uint8).numpy().tobytes())
