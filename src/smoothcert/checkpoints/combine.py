"""Combine several checkpoints into an ensemble."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smoothcert.checkpoints.checkpoint import Checkpoint
from smoothcert.errors import UsageError
from smoothcert.models import Ensemble


@dataclass(frozen=True)
class CombinedCheckpoint:
    """An ensemble with its members' common metadata, and a hash of `consensus` and the members' files in order."""

    model: Ensemble
    about: Mapping[str, Any]
    sha256: str

    def describe(self) -> dict[str, Any]:
        """Return the description of the model for the sidecar of a results file."""
        known = {key: self.about[key] for key in ("method", "ensemble") if key in self.about}
        return {"sha256": self.sha256, "architecture": self.model.architecture, **known}


def combine_checkpoints(checkpoints: Sequence[Checkpoint], consensus: int | None = None) -> CombinedCheckpoint:
    """Combine several checkpoints into an ensemble.

    With `consensus` = k, only inputs on which the first k members disagree are passed to the other members.
    """
    model = Ensemble([checkpoint.model for checkpoint in checkpoints], consensus)
    about: dict[str, Any] = {}
    for key, what in (("sigma", "noise level"), ("dataset", "dataset"), ("method", "")):
        values = [checkpoint.about.get(key) for checkpoint in checkpoints]
        other = [value for value in values if value != values[0]]
        if other and what:
            raise UsageError(f"Expected all members to have the same {what}, but got {values[0]} and {other[0]}.")
        if not other and values[0] is not None:
            about[key] = values[0]
    members = [checkpoint.describe() for checkpoint in checkpoints]
    about["ensemble"] = {"members": members, "consensus": consensus}
    identity = json.dumps([[member["sha256"] for member in members], consensus])
    return CombinedCheckpoint(model, about, hashlib.sha256(identity.encode()).hexdigest())
