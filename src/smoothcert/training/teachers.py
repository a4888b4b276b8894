"""The teacher of a run: the network whose votes are the run's soft labels."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from smoothcert.training.compute import method_of
from smoothcert.training.config import TrainConfig, to_toml, without_sampling


def uses_soft_labels(config: TrainConfig) -> bool:
    """Return True if a run needs soft labels."""
    return method_of(config).uses_soft_labels


def teacher_config(config: TrainConfig) -> TrainConfig:
    """Return the configuration of a run's teacher.

    The teacher is trained like the run, but with the method `gaussian`, sigma `label_sigma` and seed 0, and without
    discarding or reweighting images.
    """
    changes: dict[str, Any] = {"method": "gaussian", "options": {}, "sigma": config.label_sigma, "seed": 0}
    changes |= {"name": "teacher", "label_samples": 1, "label_view": "clean"}  # the teacher uses no soft labels
    teacher = without_sampling(config, **changes)
    # The name ends in a hash of the teacher's settings (as ASCII text), so that runs whose teachers would have the same
    # settings share a teacher. To keep the names from earlier versions, which recorded no fingerprints, the hash
    # excludes the fingerprints of bundled architectures.
    named = teacher if teacher.network else dataclasses.replace(teacher, initial_weights="")
    text = re.sub(r"[^\x00-\x7f]+", lambda match: json.dumps(match[0])[1:-1], to_toml(named))
    digest = hashlib.sha256(text.encode()).hexdigest()[:6]
    stem = re.sub(r"[^\w.-]", "-", Path(config.dataset).stem, flags=re.ASCII)
    return dataclasses.replace(teacher, name=f"{stem}-{config.architecture}-teacher-{digest}")
