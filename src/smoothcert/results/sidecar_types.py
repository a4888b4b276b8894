"""Types of the fields of a sidecar.

Most fields are optional, since different versions and commands of smoothcert write different fields.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from smoothcert.dataset_names import MOST_CLASSES
from smoothcert.runtime.typed_files import Between, Count, Index, Positive, Seconds

Alpha = Annotated[float, Between(1e-300, 1)]
Classes = Annotated[int, Between(1, MOST_CLASSES)]


class DataSettings(TypedDict, total=False):
    """The dataset that the images come from."""

    name: str
    split: str
    sha256: str
    dimensions: Count
    severities: Annotated[int, Between(1, 100)]
    rows: Count


class ModelSettings(TypedDict, total=False):
    """The base classifier; users may add entries that describe their own model."""

    sha256: str
    weights: str
    architecture: str
    method: str
    name: str


class RuleName(TypedDict):
    """The name of a stopping rule."""

    rule: str


class StopSettings(RuleName, total=False):
    """A stopping rule and its looks."""

    radius: Annotated[float, Between(0, 1e300)]
    radii: list[Annotated[float, Between(0, 1e300)]]
    samples: Index
    seconds: Seconds
    images: Index | None
    confidence: str
    skip_wrong: bool
    looks: list[Count]
    alphas: list[Annotated[float, Between(0, 1)]]


class LevelSettings(TypedDict):
    """One classifier of a cascade, with the settings that its votes depend on."""

    sigma: Positive


class CascadeSettings(TypedDict):
    """A cascade of smoothed classifiers with different noise levels."""

    p0: Annotated[float, Between(0, 1)]
    first_share: Annotated[float, Between(0, 1)]
    levels: list[LevelSettings]


class Settings(TypedDict, total=False):
    """The settings of the rows; they cannot change once there are rows."""

    task: str
    n0: Count
    n: Count
    alpha: Alpha
    sigma: Positive
    slack: Annotated[float, Between(0, 1)]
    seed: Annotated[int, Between(0, 2**64)]
    bound: str
    norm: str
    noise: str
    top_k: Classes
    classes: Classes
    images: str | list[Any]
    data: DataSettings
    model: ModelSettings
    stop: StopSettings
    cascade: CascadeSettings
    precision: str
    form: str
    device: str
    micro_batch: Count


class Segment(TypedDict, total=False):
    """One start or resumption of a run: device, versions, time, kernel, and model code if no `model` was given."""

    first_row: Index
    first_look: Index
    started: str
    device: str
    seconds: Seconds
    versions: dict[str, str]
    kernel: str
    function: dict[str, str]
    module: dict[str, str]


class Sidecar(TypedDict, total=False):
    """The content of a sidecar."""

    settings: Settings
    segments: list[Segment]
    samples: Index
