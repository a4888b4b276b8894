"""Soft labels: a teacher's votes on the training images under noise (Eq. 11 of the paper).

The votes are stored next to the teacher, in an ordinary predictions file with counts, which other tools can read. The
file's name contains a hash of everything that the votes depend on, so that votes are computed only once, and so that
an interrupted computation is resumed. The complete votes are packed into a second file, which training reads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smoothcert.certification.dataset import predict_dataset
from smoothcert.certification.job import Progress
from smoothcert.checkpoints.checkpoint import load_checkpoint
from smoothcert.data.image_data import ImageData
from smoothcert.data.readers.folder import FolderImages, FolderViews
from smoothcert.distributed.ranks import current_ranks
from smoothcert.errors import UsageError
from smoothcert.models import Factory
from smoothcert.philox import Purpose
from smoothcert.results.naming import counts_path
from smoothcert.results.records import Prediction
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.counting import default_micro_batch
from smoothcert.smoothing.deploy import choose_deployment
from smoothcert.training.batches import AUGMENTATIONS
from smoothcert.training.packed_labels import PackedLabels, pack_labels

_MOST_IN_MEMORY = 1 << 28  # values to keep in memory; CIFAR-100 has 5 million
_SEED = 0  # the same for all runs, so that they share soft labels
_ONE_VIEW = 0xFFFFFFFF  # step number for drawing the augmented view; no training step has this number


def make_soft_labels(
    teacher: Path,
    data: ImageData,
    *,
    factory: Factory | None = None,
    sigma: float = 0.25,
    samples: int = 10_000,
    augmentation: str = "none",
    device: torch.device | str = "cpu",
    on_progress: Callable[[Progress[Prediction]], None] | None = None,
) -> Tensor | PackedLabels:
    """Compute soft labels [images, classes]: each class's share of the teacher's votes under `samples` noise samples.

    `teacher` is a run folder or checkpoint. `factory` creates the teacher's network if it is not bundled. With an
    augmentation, the teacher votes on one random view of each image, as in the published code. Soft labels that would
    take too much memory are returned as `PackedLabels`, which reads them from the file on demand.
    """
    checkpoint, device = load_checkpoint(teacher, model=factory), torch.device(device)
    shown = data if augmentation == "none" else _one_view(data, augmentation)
    model = checkpoint.model.to(device)
    form, precision = choose_deployment(model, data.shape, samples * len(data))
    default_size = default_micro_batch(data.shape.numel(), device)
    micro_batch = -(-samples // -(-samples // default_size))  # divides the samples evenly, with little padding
    options: dict[str, Any] = {"form": form, "precision": precision, "micro_batch": micro_batch}
    classifier = SmoothedClassifier(model, sigma, model.num_classes, **options)
    parts = (checkpoint.sha256, shown.fingerprint, sigma, samples, _SEED, form, precision, micro_batch, device.type)
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]
    out = (teacher if teacher.is_dir() else teacher.parent) / f"soft-labels-{digest}.tsv"
    packed = out.with_suffix(".safetensors")
    if not current_ranks().broadcast_from_rank0(packed.is_file()):
        predict_dataset(
            classifier,
            shown,
            out,
            n=samples,
            alpha=0.5,
            seed=_SEED,
            batch=16 * default_size,  # images with few samples share a forward pass
            purpose=Purpose.SOFT_LABELS,
            model={"sha256": checkpoint.sha256},
            on_progress=on_progress,
        )
        if current_ranks().first:
            pack_labels(counts_path(out), len(data), packed)
        current_ranks().wait_for_rank0()  # so that every rank finds the file
    labels = PackedLabels(packed, model.num_classes)
    return labels.dense() if len(data) * model.num_classes <= _MOST_IN_MEMORY else labels


def _one_view(data: ImageData, augmentation: str) -> ImageData:
    """Return a dataset in which every image is replaced with one augmented view of it."""
    if isinstance(data.images, FolderImages):
        if augmentation != "resized-crop-flip":
            text = "'resized-crop-flip' for an image folder with `label_view='augmented'`"
            raise UsageError(f"Expected `augmentation` to be {text}, but got {augmentation!r}.")
        return replace(data, images=FolderViews(data.images, _SEED, _ONE_VIEW))
    everything = data.images[torch.arange(len(data))]
    view = AUGMENTATIONS[augmentation](everything, _SEED, _ONE_VIEW)
    return replace(data, images=(view.round().byte() if everything.dtype == torch.uint8 else view).contiguous())
