"""Convert users' own data (pairs of arrays, PyTorch datasets and data loaders) to `ImageData`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, SequentialSampler, TensorDataset

from smoothcert.data.image_data import ImageData
from smoothcert.errors import UsageError, kind_of

Labeled = ImageData | Dataset[Any] | DataLoader[Any] | Sequence[Any]
"""Labeled data of any kind that `as_image_data` converts; a sequence is a pair (inputs, labels)."""

_MOST_BYTES = 4 * 2**30
_READ_AT_ONCE = 256


def as_image_data(data: Any, split: str = "test") -> ImageData:
    """Convert a pair (inputs, labels), a PyTorch dataset of such pairs, or a DataLoader to `ImageData`.

    uint8 inputs are scaled to [0, 1]; floats are used unchanged. PyTorch datasets with an attribute `targets` that
    contains all labels, such as torchvision's `CIFAR10`, are read on demand; others are read into memory.
    """
    if isinstance(data, ImageData):
        return data
    if isinstance(data, DataLoader):
        if not isinstance(data.sampler, SequentialSampler) and data.batch_sampler is not None:
            raise UsageError(
                "Expected a DataLoader with `shuffle=False` and no `sampler`, for a dataset with `len` and indexing, "
                "because results identify inputs by position."
            )
        return ImageData(type(data.dataset).__name__, split, *_join(data))
    if isinstance(data, TensorDataset):
        return ImageData("TensorDataset", split, *_as_pair(data.tensors))
    if isinstance(data, tuple | list) and len(data) == 2:
        return ImageData("arrays", split, *_as_pair(data))
    if isinstance(data, IterableDataset):
        raise UsageError(
            "Expected a dataset with `len` and indexing, but got an IterableDataset; convert it to arrays."
        )
    not_items = (str, bytes, Mapping, Tensor, np.ndarray)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, not_items):
        return _from_dataset(data, split)
    raise UsageError(
        "Expected `data` to be a dataset from `load_dataset`, a pair (inputs, labels), or a Dataset or DataLoader of "
        f"such pairs, but got {kind_of(data)}."
    )


@dataclass(frozen=True)
class DatasetImages:
    """The inputs of a PyTorch dataset, read on demand."""

    dataset: Any
    shape: torch.Size

    def __getitem__(self, indices: Tensor, /) -> Tensor:
        """Return the inputs at these indices."""
        return _stack([_item(self.dataset, place)[0] for place in indices.reshape(-1).tolist()])

    def fingerprint(self) -> bytes:
        """Return the bytes of the first, the middle and the last input."""
        places = sorted({0, self.shape[0] // 2, self.shape[0] - 1})
        inputs = [_item(self.dataset, place)[0] for place in places]
        return b"".join(x.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for x in inputs)


def _from_dataset(data: Any, split: str) -> ImageData:
    name, count = type(data).__name__, len(data)
    if not count:
        raise UsageError(f"Expected `data` with at least one input, but the {name} is empty.")
    first, _ = _item(data, 0)
    if not torch.equal(first, _item(data, 0)[0]):
        raise UsageError(f"The {name} returns a different input each time; remove its random transforms.")
    targets = getattr(data, "targets", None)
    transformed = getattr(data, "target_transform", None) is not None  # torchvision keeps the original `targets`
    if targets is not None and len(targets) == count and not transformed:
        images = DatasetImages(data, torch.Size((count, *first.shape)))
        return ImageData(name, split, images, _as_labels(targets))
    if (size := count * first.numel() * first.element_size()) > _MOST_BYTES:
        raise UsageError(
            f"The {name} takes {size / 2**30:.1f} GiB in memory; the limit is {_MOST_BYTES // 2**30} GiB. Add an "
            "attribute `targets` with all labels, so that inputs are read on demand, or pass a "
            "`torch.utils.data.Subset`."
        )
    chunks = (range(start, min(start + _READ_AT_ONCE, count)) for start in range(0, count, _READ_AT_ONCE))
    pairs = ([_item(data, place) for place in chunk] for chunk in chunks)
    return ImageData(name, split, *_join((_stack([x for x, _ in part]), [y for _, y in part]) for part in pairs))


def _item(data: Any, place: int) -> tuple[Tensor, int]:
    item = data[place]
    if not (isinstance(item, tuple | list) and len(item) == 2):
        raise UsageError(
            f"Expected each item of the {type(data).__name__} to be a pair (input, label), but got {_kind(item)}."
        )
    return _as_inputs(item[0]), int(_as_labels([item[1]])[0])


def _join(batches: Iterable[Any]) -> tuple[Tensor, Tensor]:
    inputs, labels, size = list[Tensor](), list[Tensor](), 0
    for batch in batches:
        x, y = _as_pair(batch)
        inputs.append(x)
        labels.append(y)
        size += x.numel() * x.element_size()
        if size > _MOST_BYTES:
            raise UsageError(f"The data takes more than {_MOST_BYTES // 2**30} GiB in memory; pass a subset.")
    if not inputs:
        raise UsageError("Expected `data` with at least one input, but it is empty.")
    return torch.cat(inputs), torch.cat(labels)


def _as_pair(pair: Any) -> tuple[Tensor, Tensor]:
    if not (isinstance(pair, tuple | list) and len(pair) == 2):
        raise UsageError(f"Expected `data` to contain pairs (inputs, labels), but got {_kind(pair)}.")
    inputs, labels = _as_inputs(pair[0]), _as_labels(pair[1])
    if not inputs.dim():
        raise UsageError("Expected inputs of shape [count, ...], but got a single number.")
    if len(inputs) != len(labels):
        raise UsageError(f"Expected one label per input, but got {len(inputs)} inputs and {len(labels)} labels.")
    return inputs, labels


def _as_inputs(x: Any) -> Tensor:
    """Convert inputs to a tensor of uint8 or floats; a PIL image becomes [channels, height, width]."""
    if hasattr(x, "getbands"):  # a Pillow image; Pillow is not imported here
        pixels = torch.from_numpy(np.array(x))
        x = pixels.unsqueeze(0) if pixels.dim() == 2 else pixels.permute(2, 0, 1)
    inputs = _as_tensor(x, "inputs to be tensors or arrays")
    if inputs.dtype != torch.uint8 and not inputs.is_floating_point():
        raise UsageError(f"Expected inputs of uint8 or floats, but got {inputs.dtype}.")
    return inputs


def _as_labels(y: Any) -> Tensor:
    labels = _as_tensor(y, "labels to be integers")
    if labels.dim() != 1 or labels.is_floating_point() or labels.is_complex():
        kind = f"{labels.dtype} of shape {list(labels.shape)}"
        raise UsageError(f"Expected labels to be integers, one per input, but got {kind}.")
    return labels.long()


def _as_tensor(values: Any, expected: str) -> Tensor:
    try:
        return torch.as_tensor(values).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"Expected {expected}, but got {_kind(values)}.") from error


def _stack(inputs: Sequence[Tensor]) -> Tensor:
    shapes = {tuple(x.shape) for x in inputs}
    if len(shapes) > 1:
        first, second = sorted(shapes)[:2]
        raise UsageError(f"Expected inputs of the same shape, but got {list(first)} and {list(second)}.")
    return torch.stack(list(inputs))


def _kind(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"{kind_of(value)} of length {len(value)}"
    return kind_of(value)
