"""Environment of a computation: versions, device, threads."""

from __future__ import annotations

import hashlib
import os
import platform
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import scipy
import torch

from smoothcert import __version__
from smoothcert.errors import UsageError, first_line, takes

_PACKAGE = Path(__file__).parents[1]


def describe_environment(device: torch.device) -> dict[str, Any]:
    """Return start time, device, threads, platform, code and package versions, as values that JSON can store."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "threads": torch.get_num_threads(),
        "platform": f"{platform.system()} {platform.machine()}",
        "source": source_hash(),
        "versions": {
            "smoothcert": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "scipy": scipy.__version__,
            **({"cuda": torch.version.cuda} if device.type == "cuda" else {}),
        },
    }


def describe_function(device: torch.device) -> dict[str, Any]:
    """Return the parts of the environment that affect how floating-point results of a network are rounded."""
    environment = describe_environment(device)
    versions = {key: version for key, version in environment["versions"].items() if key in ("torch", "cuda")}
    return {**{key: environment[key] for key in ("device", "source")}, "versions": versions}


def facts(device: torch.device) -> dict[str, str]:
    """Return the facts that all ranks must agree on."""
    return {"code version": source_hash(), "torch": torch.__version__, "device": device.type}


@cache
def source_hash() -> str:
    """Return a short hash of the package's source files, to identify the code version even after local changes."""
    digest = hashlib.sha256()
    for path in sorted([*_PACKAGE.rglob("*.py"), *_PACKAGE.rglob("*.cu*")]):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


@takes(device=(str, torch.device))
def choose_device(device: str | torch.device = "auto") -> torch.device:
    """Return the named device or, for "auto", the GPU if there is one, else the CPU. Raise if it cannot be used.

    If a launcher such as torchrun started this process, "auto" and "cuda" select the GPU of its local rank. A
    `torch.device` is returned unchanged.
    """
    if isinstance(device, torch.device):
        return device
    name = device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
        if "LOCAL_RANK" not in os.environ:
            return torch.device(name)
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        found = torch.device(name)
        torch.empty(1, device=found)
        if found.type == "cuda" and found.index is not None:
            torch.cuda.set_device(found)  # the default for streams and kernels
    except (RuntimeError, AssertionError) as error:
        reason = first_line(error)
        raise UsageError(f"The device {name!r} cannot be used here ({reason}); try `device='cpu'`.") from error
    return found


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as info:
            names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
