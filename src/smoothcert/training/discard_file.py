"""Read a `discard_file`, which contains another network's share of correct votes on each training image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothcert.errors import SmoothcertError
from smoothcert.training.packed_labels import read_votes


def read_shares(path: str | Path, labels: Tensor) -> Tensor:
    """Read each image's share of correct votes, float64, from a `.npy` file or a counts file of `smoothcert predict`.

    `labels`, one per training image, tell which votes in a counts file are correct.
    """
    path = Path(path)
    try:
        if path.suffix == ".npy":
            shares = np.asarray(np.load(path, allow_pickle=False), dtype=np.float64)
        else:
            shares = _from_counts(path, labels.cpu().numpy())
    except OSError as error:
        reason = error.strerror or "it is not a .npy file"
        raise SmoothcertError(f"Expected `discard_file` to be readable, but {path} is not ({reason}).") from error
    except Exception as error:  # a damaged file can raise anything
        raise SmoothcertError(
            f"Expected `discard_file` to contain a number or class counts for each of the {len(labels):,} training "
            f"images, but {path} does not."
        ) from error
    if shares.shape != (len(labels),):
        raise SmoothcertError(
            f"Expected {path} to contain one number for each of the {len(labels):,} training images, but its values "
            f"have shape {list(shares.shape)}."
        )
    valid = (shares >= 0) & (shares <= 1)
    if not valid.all():
        bad = int(valid.argmin())
        text = f"but the share of image {bad} is {shares[bad]:g}"
        raise SmoothcertError(f"Expected the shares of correct votes in {path} to be between 0 and 1, {text}.")
    return torch.from_numpy(shares)


def _from_counts(path: Path, labels: NDArray[np.int64]) -> NDArray[np.float64]:
    shares = {
        index: pairs[pairs[:, 0] == labels[index], 1].sum() / pairs[:, 1].sum() for index, pairs in read_votes(path)
    }
    if sorted(shares) != list(range(len(shares))):
        raise ValueError("some images are missing")
    return np.array([shares[index] for index in range(len(shares))])
