"""The model card of a trained network, with the YAML header that model hubs read."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from smoothcert.dataset_names import TITLES, canonical_name
from smoothcert.errors import counted
from smoothcert.training.compute import with_defaults
from smoothcert.training.config import TrainConfig, to_toml

_HUB_DATASETS = {"mnist-mini": "mnist", "imagenet": "imagenet-1k"}  # names on model hubs, where they differ
_PATH_FIELDS = ("dataset", "teacher", "init", "discard_file")


def model_card(
    config: TrainConfig,
    metrics: Sequence[Mapping[str, Any]],
    environment: Mapping[str, Any],
    own_shape: Sequence[int] | None = None,
) -> str:
    """Return the text of a run folder's README. Local paths in it are shortened to their last part.

    `own_shape` is the input shape of a user's own network, or None for a bundled architecture.
    """
    last = metrics[-1] if metrics else {}
    seconds = sum(row.get("seconds", 0.0) for row in metrics)
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    shown = _without_folders(with_defaults(config))
    images = own_shape is None or len(own_shape) == 3
    measured = {"test": last.get("test_accuracy", math.nan), "validation": last.get("validation_accuracy", math.nan)}
    accuracies = "".join(
        f"- accuracy of the base classifier with one noise sample per input, last epoch: {value:.2f} % "
        f"of the {split} data\n"
        for split, value in measured.items()
        if math.isfinite(value)
    )
    return f"""---
{_header(config, measured["test"], "image-classification" if images else "tabular-classification")}
---

# {shown.name}

A {shown.architecture} for {shown.dataset}, trained with {shown.method} for randomized smoothing with Gaussian noise
of standard deviation {shown.sigma:g} ({"on images in [0, 1]" if images else "on the scale of the inputs"}).

- {counted(shown.epochs, "epoch")} in {seconds:,.0f} s on {environment["device"]} ({versions})
{accuracies}
{_certify_text(shown, own_shape)}

Configuration:

```toml
{to_toml(shown)}```
"""


def _certify_text(config: TrainConfig, own_shape: Sequence[int] | None) -> str:
    lines = ["smoothcert certify PATH_OF_THIS_FOLDER"]
    if own_shape is not None:
        lines = [
            'checkpoint = smoothcert.load_checkpoint("PATH_OF_THIS_FOLDER", model=FUNCTION_THAT_CREATES_THE_NETWORK)',
            f"smoothed = smoothcert.SmoothedClassifier(checkpoint.model, sigma={config.sigma:g})",
            'smoothcert.certify_dataset(smoothed, TEST_DATA, "certify.tsv")',
        ]
    return "\n".join(["Measure its certified accuracy with", "", *(f"    {line}" for line in lines)])


def _header(config: TrainConfig, accuracy: float, task: str) -> str:
    """Return the YAML header, without a license: the owner of the model chooses one."""
    name = canonical_name(config.dataset)
    known = name in TITLES
    title = TITLES[name] if known else _without_folder(config.dataset)
    hub_name = _HUB_DATASETS.get(name, name) if known else "local"
    lines = [
        "library_name: smoothcert",
        f"pipeline_tag: {task}",
        "tags:",
        *(f"- {_quoted(tag)}" for tag in ("randomized-smoothing", "certified-robustness", config.method)),
    ]
    if known:
        lines += ["datasets:", f"- {_quoted(hub_name)}"]
    if math.isfinite(accuracy):
        lines += [
            "metrics:",
            "- accuracy",
            "model-index:",
            f"- name: {_quoted(config.name)}",
            "  results:",
            "  - task:",
            f"      type: {task}",
            "    dataset:",
            f"      name: {_quoted(title)}",
            f"      type: {_quoted(hub_name)}",
            "      split: test",
            "    metrics:",
            "    - type: accuracy",
            "      name: accuracy with one noise sample per input",
            f"      value: {accuracy / 100:.4f}",  # hubs expect a fraction
        ]
    return "\n".join(lines)


def _without_folders(config: TrainConfig) -> TrainConfig:
    """Shorten the paths in a configuration to their last part, so that the card can be published."""
    paths: dict[str, Any] = {name: _without_folder(getattr(config, name)) for name in _PATH_FIELDS}
    texts = {name: _without_folder(value) for name, value in config.options.items() if isinstance(value, str)}
    return dataclasses.replace(config, **paths, options={**config.options, **texts})


def _without_folder(path: str) -> str:
    """Replace the folder of a path with dots; return any other text unchanged.

    >>> _without_folder("/home/me/mnist/"), _without_folder("mnist"), _without_folder("../..")
    ('.../mnist', 'mnist', '...')
    """
    parts = re.split(r"[/\\]", path)
    names = [part for part in parts if part not in ("", ".", "..", "~")]
    return "/".join(["...", *names[-1:]]) if len(parts) > 1 else path


def _quoted(text: str) -> str:
    r"""Quote text as a one-line YAML string: a JSON string with all non-printable characters escaped.

    >>> print(_quoted('a "b": é\n\x85'))
    "a \"b\": é\n\U00000085"
    """
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in quoted)
