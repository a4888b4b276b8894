"""Results files as table entries: the dataset, noise level, method and protocol of each file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from smoothcert.model_names import is_bundled
from smoothcert.report.tables.paper_numbers import ALIASES, PAPER_METHODS
from smoothcert.report.tables.protocol import protocol_of
from smoothcert.results.records import Results
from smoothcert.statistics.bounds import largest_radius
from smoothcert.training.known_methods import method_title

_FILE_NAME = re.compile(r"(?P<method>.+)-(?P<sigma>\d+(\.\d+)?)")


@dataclass(frozen=True)
class Entry:
    """Results of one run, with the properties that the table shows, sorts or groups by."""

    results: Results
    name: str
    dataset: str | None
    sigma: float | None
    method: str | None
    n: int | None
    alpha: float | None
    protocol: str = ""  # differences from the published CERTIFY, empty if there are none
    paper: tuple[str | None, str] = (None, "")  # table (None: the main one) and setup of the matching row in the paper
    seed: int | None = None  # set if runs differ in their seed only
    cost: float | None = None  # of training per image, in units of a forward pass
    qualifier: str = ""  # distinguishes runs with the same name, dataset and noise level

    @property
    def settings(self) -> Mapping[str, Any]:
        """Certification settings from the sidecar, empty without one."""
        settings: Mapping[str, Any] = self.results.about.get("settings", {})
        return settings

    @property
    def group(self) -> tuple[str, float]:
        """Dataset and noise level (0 if unknown): rows with equal values, on equal images, are a group of the table."""
        return (self.dataset or "", self.sigma or 0.0)

    @property
    def rivals(self) -> tuple[Any, ...]:
        """Dataset, noise level, protocol and images: rows with equal values are ranked against each other."""
        return (*self.group, self.protocol, self.image_set)

    @cached_property
    def image_set(self) -> bytes:
        """Key that is equal for results on the same images."""
        return np.sort(self.results.idx).tobytes()

    @property
    def title(self) -> str:
        """Name of the table row."""
        if self.seed is not None:
            return f"{self.name}, seed {self.seed}"
        return f"{self.name} ({self.qualifier})" if self.qualifier else self.name


def stated_sigma(name: str, given: Mapping[str, Any]) -> float | None:
    """Return the noise level of a file without a sidecar: from `given`, else from its name METHOD-SIGMA, else None."""
    file_name = _FILE_NAME.fullmatch(name)
    return given.get("sigma") or (float(file_name["sigma"]) if file_name else None)


def _own_name(results: Results) -> str | None:
    """Return the name of a user's model: its name in the settings, or else the name of its class or function."""
    given = results.about.get("settings", {}).get("model", {}).get("name")
    segment = (results.about.get("segments") or [{}])[-1]
    named = segment.get("module") or segment.get("function") or {}
    name = str(given or named.get("name") or "").rpartition(".")[2]
    return name if name and not name.startswith("<") else None


def describe(results: Results, name: str | None = None, **given: Any) -> Entry:
    """Return the table entry for results, by default named after their method.

    Published files have no sidecar: method and noise level are in the file name, METHOD-SIGMA.tsv. `given` may
    contain `dataset` and `sigma`, for files that do not state them.
    """
    settings = results.about.get("settings", {})
    model = settings.get("model", {})
    file_name = _FILE_NAME.fullmatch(results.name)
    sigma = settings.get("sigma") or stated_sigma(results.name, given)
    if not settings and sigma and results.radius.max() > largest_radius(sigma, 10**7, 0.001) * 1.01:
        sigma = given.get("sigma")  # radii this large cannot come from the noise level in the file name
    method = (model.get("method") or (file_name["method"] if file_name else results.name)).lower()
    method = ALIASES.get(method, method)
    own = model.get("method") or _own_name(results)  # name of a method or model that is not in the paper
    protocol, ensemble, architecture = protocol_of(settings), model.get("ensemble"), model.get("architecture")
    label = name or method_title(method, own or results.name)
    if architecture and not is_bundled(architecture) and not ensemble:  # a user's network, which is not in the paper
        own, method = f"{method} ({architecture})", ""
        label = name or f"{label}, {architecture}"
    if ensemble and not name:
        members, consensus = ensemble["members"], ensemble.get("consensus")
        label += f", ensemble of {members if isinstance(members, int) else len(members)}"
        label += f", consensus {consensus}" if consensus else ""
    return Entry(
        results=results,
        name=f"{label} [{protocol}]" if protocol else label,
        dataset=settings.get("data", {}).get("name") or given.get("dataset"),
        sigma=sigma,
        method=None if ensemble else method if method in PAPER_METHODS else own,
        n=settings.get("n"),
        alpha=settings.get("alpha"),
        protocol=protocol,
    )
