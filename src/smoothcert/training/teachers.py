"""Which network votes on the soft labels of a run, where it needs some."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from pathlib import Path
from typing import Any

from smoothcert.training.compute import method_of
from smoothcert.training.config import TrainConfig, to_toml


def uses_soft_labels(config: TrainConfig) -> bool:
    """Whether a run needs a teacher's votes on its training images."""
    return method_of(config).uses_soft_labels


def teacher_config(config: TrainConfig) -> TrainConfig:
    """Return the Gaussian training whose network votes on soft labels: the run's own settings at sigma_0."""
    changes: dict[str, Any] = {"method": "gaussian", "options": {}, "sigma": config.label_sigma, "seed": 0}
    unused: dict[str, Any] = {"label_samples": 1, "label_view": "clean"}
    teacher = dataclasses.replace(config, name="teacher", **changes, **unused)
    # Runs share a teacher when all its settings are the same: its name ends in a hash of them.
    digest = hashlib.sha256(to_toml(teacher).encode()).hexdigest()[:6]
    stem = re.sub(r"[^\w.-]", "-", Path(config.dataset).stem, flags=re.ASCII)
    return dataclasses.replace(teacher, name=f"{stem}-{config.architecture}-teacher-{digest}")
