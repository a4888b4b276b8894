"""The fields of a training configuration, with help and checks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from smoothcert.smoothing.precision_names import PRECISIONS

_Check = tuple[Callable[[Any], bool], str]
_FINITE: _Check = (lambda value: value < math.inf, "be finite")
_BELOW_ONE: _Check = (lambda value: value < 1, "be below 1")
_BELOW_2_31: _Check = (lambda value: value < 1 << 31, "be below 2**31")
_BELOW_2_63: _Check = (lambda value: value < 1 << 63, "be below 2**63")
_AT_LEAST_0: _Check = (lambda value: value >= 0, "be >= 0")
_AT_LEAST_1: _Check = (lambda value: value >= 1, "be at least 1")
_AT_LEAST_16: _Check = (lambda value: value >= 16, "be at least 16")
_SHARE: _Check = (lambda value: 0 <= value <= 1, "be between 0 and 1")
_POSITIVE: tuple[_Check, ...] = ((lambda value: value > 0, "be > 0"), _FINITE)
_INDEX, _COUNT = (_AT_LEAST_0, _BELOW_2_31), (_AT_LEAST_1, _BELOW_2_31)
_FILE_NAME: _Check = (
    lambda name: name.replace("-", "").replace("_", "").replace(".", "").isalnum(),
    "consist of letters, digits, '-', '_' and '.', with at least one letter or digit",
)
_SHORT: _Check = (lambda name: len(name.encode()) <= 200, "have at most 200 bytes")


def _field(default: Any, help: str, *checks: _Check) -> Any:
    return dataclasses.field(default=default, metadata={"help": help, "checks": checks})


def _choice(names: tuple[str, ...], help: str) -> Any:
    """Declare a field whose value is one of `names`; the default is the first."""
    return _field(names[0], help, (lambda value: value in names, f"be one of {', '.join(names)}"))


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The fields of `TrainConfig`. Names of teachers depend on their order and defaults."""

    # Run
    name: str = _field("run", "name of the run and of its folder", _FILE_NAME, _SHORT)
    dataset: str = _field("mnist", "dataset, .npz file or image folder")
    architecture: str = _field("lenet", "network architecture (see `smoothcert list models`)")
    method: str = _field("gaussian", "training method (see `smoothcert list methods`)")
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict, metadata={"help": "options of the method"})
    sigma: float = _field(0.25, "standard deviation of the noise, on images in [0, 1]", *_POSITIVE)
    seed: int = _field(0, "seed of all random numbers of the run", _AT_LEAST_0, _BELOW_2_63)

    # Mini-batches
    epochs: int = _field(150, "passes over the training images", *_COUNT)
    batch: int = _field(256, "images per mini-batch", *_COUNT)
    steps: str = _choice(
        ("split", "whole"),
        "split: cut each mini-batch into steps as the method's published code does, usually one per noise sample; "
        "whole: one step per mini-batch",
    )

    # Learning rate
    learning_rate: float = _field(0.01, "initial learning rate; with one-cycle or warm-up, the highest", *_POSITIVE)
    schedule: str = _choice(
        ("step", "one-cycle", "cosine"),
        "step: drop every lr_step epochs; one-cycle: one linear rise and fall; cosine: fall to zero along a cosine",
    )
    lr_step: int = _field(50, "epochs between drops of the learning rate", *_COUNT)
    lr_factor: float = _field(0.1, "factor that multiplies the learning rate at each drop", *_POSITIVE)
    lr_drops: str = _choice(
        ("late", "on-time"),
        "late: drop one epoch later than the paper says, as in the published code; on-time: as the paper says",
    )
    final_drop: str = _choice(
        ("none", "one-epoch", "to-the-end"),
        "one more drop at final_drop_epoch; none: no drop; one-epoch: for a single epoch, as in the published code; "
        "to-the-end: for the rest of the training, as the paper says",
    )
    final_drop_epoch: int = _field(85, "epoch of the final drop", *_INDEX)

    # Optimizer
    momentum: float = _field(0.9, "momentum of SGD", _AT_LEAST_0, _BELOW_ONE)
    weight_decay: float = _field(1e-4, "weight decay, applied to all parameters", _AT_LEAST_0, _FINITE)
    batch_norm: str = _choice(
        ("local", "synced"),
        "BatchNorm statistics with several processes; local: from each process's share of the mini-batch; synced: from "
        "the whole mini-batch",
    )

    # Images
    augmentation: str = _choice(
        ("none", "crop-flip", "resized-crop-flip"),
        "none; crop-flip: shift by up to 4 pixels and mirror; resized-crop-flip: enlarge a random part and mirror",
    )
    resize: int = _field(
        0, "image folders: shorter side of a test image after resizing (0: the dataset's default)", *_INDEX
    )
    crop: int = _field(
        0, "image folders: side of the square crop of training and test images (0: the dataset's default)", *_INDEX
    )
    skip_broken: bool = _field(
        False, "image folders: replace each training image that cannot be decoded with the next one of its class"
    )

    # Compute
    precision: str = _choice(PRECISIONS, "fp32; tf32: TF32 matrix products on a GPU; bf16: bfloat16 autocast")

    # Soft labels
    teacher: str = _field(
        "", "checkpoint or run folder of the network that makes the soft labels (empty: train a teacher first)"
    )
    label_sigma: float = _field(0.25, "noise level of the soft labels (sigma_0 in the paper)", *_POSITIVE)
    label_samples: int = _field(10_000, "noise samples per image for the soft labels (N in the paper)", *_COUNT)
    label_view: str = _choice(
        ("clean", "augmented"),
        "clean: soft labels of the images themselves; augmented: of one augmented view of each, as in the published "
        "code",
    )

    # Sampling
    sampling: str = _choice(
        ("shuffle", "replacement"),
        "shuffle: every epoch passes over all training images once; replacement: from sampling_epoch on, every epoch "
        "draws the same number of images with replacement; discard_below and reweight_every set their weights "
        "(default: equal)",
    )
    sampling_epoch: int = _field(0, "first epoch that draws with replacement, counted from 0 (E_t)", _AT_LEAST_0)
    discard_below: float = _field(
        0.0,
        "at sampling_epoch, drop images that the network classifies correctly for less than this share of their noise "
        "samples (p_t; 0: keep all)",
        _SHARE,
    )
    discard_samples: int = _field(100, "noise samples per image for discarding", _AT_LEAST_1)
    discard_file: str = _field(
        "",
        "for discarding, take the shares of correct votes from this file, not from the network: a .npy file with one "
        "number per training image, or the counts file of `smoothcert predict --split train`",
    )
    reweight_every: int = _field(
        0,
        "epochs between updates of the image weights, from sampling_epoch on; the weight of an image grows with the "
        "network's accuracy on it under noise (0: all images have the same weight)",
        _AT_LEAST_0,
    )
    reweight_samples: int = _field(16, "noise samples per image for reweighting", _AT_LEAST_16)

    # Fine-tuning
    init: str = _field(
        "",
        "initial weights: run folder, checkpoint, bundled model, or file with a state dict (.safetensors, .pt); "
        "empty: random",
    )
    optimizer: str = _choice(("sgd", "adamw"), "sgd: SGD with momentum; adamw: AdamW with betas 0.9 and 0.999")
    warmup_epochs: float = _field(
        0.0,
        "epochs over which the learning rate rises to learning_rate; for schedules other than one-cycle",
        _AT_LEAST_0,
        _FINITE,
    )
    validation: float = _field(
        0.0,
        "fraction of the training images to set aside for measuring the accuracy after every epoch",
        _AT_LEAST_0,
        _BELOW_ONE,
    )

    # Fingerprints, recorded by training; see `smoothcert.training.prepare.identify`
    network: str = _field("", "layer types, settings and shapes of a user's network")
    initial_weights: str = _field("", "hash of the given initial weights, or `random`")


_GROUPS = {
    "Run": "name dataset architecture method sigma seed",
    "Mini-batches": "epochs batch steps",
    "Learning rate": "learning_rate schedule lr_step lr_factor lr_drops final_drop final_drop_epoch",
    "Optimizer": "momentum weight_decay batch_norm",
    "Images": "augmentation resize crop skip_broken",
    "Compute": "precision",
    "Soft labels": "teacher label_sigma label_samples label_view",
    "Sampling": "sampling sampling_epoch discard_below discard_samples discard_file reweight_every reweight_samples",
    "Fine-tuning": "init optimizer warmup_epochs validation",
}
GROUPS = {title: names.split() for title, names in _GROUPS.items()}
"""Fields that have a command-line flag, by group: all but `options` and fingerprints."""
FINGERPRINTS = ("network", "initial_weights")
