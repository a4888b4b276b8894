"""Names of the package's networks, for commands that list them without importing torch."""

from __future__ import annotations

ARCHITECTURES = ("lenet", "cifar_resnet20", "cifar_resnet110", "resnet50")
