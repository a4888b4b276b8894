"""The function `train`, which trains any network on any labeled data by any method."""

from __future__ import annotations

import atexit
import dataclasses
import inspect
from collections.abc import Callable, Mapping
from numbers import Real
from pathlib import Path
from types import NoneType
from typing import Any

import torch
from torch import nn

from smoothcert.checkpoints.checkpoint import Checkpoint, load_checkpoint
from smoothcert.data.user_data import Labeled, as_image_data
from smoothcert.distributed.ranks import current_ranks, join, leave
from smoothcert.errors import UsageError, takes, unknown_name
from smoothcert.models import Factory, UserModel, as_factory, find_factory, unwrap
from smoothcert.runtime.environment import choose_device
from smoothcert.training.config import TrainConfig, make_config
from smoothcert.training.known_methods import known_methods
from smoothcert.training.loop import TrainProgress
from smoothcert.training.prepare import OnStage, silent
from smoothcert.training.run_data import GivenData, RunData, RunImages, check_range
from smoothcert.training.runs import join_ranks, train_runs
from smoothcert.training.settings import GROUPS

_FROM_ARGUMENT = {"dataset": "train_data", "architecture": "model"}
_LEARNING_RATES = {"sgd": 0.01, "adamw": 0.001}

OnMetrics = Callable[[Mapping[str, Any]], None]
"""Called after every epoch with its metrics, as `metrics.jsonl` records them."""


@takes(
    method=str,
    options=(Mapping, NoneType),
    name=(str, NoneType),
    runs=(str, Path),
    optimizer=str,
    init=(str, Path, NoneType),
    device=(str, torch.device),
    compile=(bool, NoneType),
    data_dir=(str, Path, NoneType),
    time_limit=(Real, NoneType),
    on_metrics=(Callable, NoneType),
    on_stage=Callable,
)
def train(
    model: str | nn.Module | Callable[..., nn.Module],
    train_data: str | Labeled,
    *,
    sigma: float,
    method: str = "gaussian",
    options: Mapping[str, Any] | None = None,
    test_data: Labeled | None = None,
    validation: float = 0.0,
    name: str | None = None,
    runs: str | Path = "runs",
    epochs: int = 90,
    batch: int = 256,
    optimizer: str = "sgd",
    learning_rate: float | None = None,
    schedule: str = "cosine",
    warmup_epochs: float = 0.0,
    weight_decay: float = 1e-4,
    augmentation: str = "none",
    init: str | Path | None = None,
    precision: str = "fp32",
    seed: int = 0,
    device: torch.device | str = "auto",
    compile: bool | None = None,
    workers: int | None = None,
    data_dir: str | Path | None = None,
    time_limit: float | None = None,
    on_metrics: OnMetrics | None = None,
    on_stage: OnStage = silent,
    **settings: Any,
) -> Checkpoint:
    """Train any network for randomized smoothing, on any labeled data and by any method.

    The run has a folder with its configuration, metrics, state, final weights and model card. The same call resumes an
    interrupted run or loads a finished one. On a CPU with the same number of threads, a resumed run ends with
    bit-identical weights. Under torchrun, each mini-batch is split among the processes.

    Args:
        model: A class or function that creates the network; a module, of which a copy is trained; or the name of an
            architecture (see `list_models`). A function may have parameters `num_classes` and `input_shape`, which are
            taken from the data. The network takes a batch of inputs and returns scores [batch, classes].
        train_data: The name or path of a dataset; a pair (inputs, labels) of arrays or tensors; `ImageData`; or a
            `torch.utils.data.Dataset` or `DataLoader` of (input, label) pairs. uint8 inputs are scaled to [0, 1].
        sigma: Standard deviation of the noise; for images, relative to pixel values in [0, 1].
        method: The training method (see `list_methods`).
        options: The method's options that differ from its defaults.
        test_data: Data on which accuracy under noise is measured after every epoch. Omit it if `train_data` is a name
            or path: the dataset's own test images are used.
        validation: Fraction of the training data to set aside for measuring accuracy in the same way.
        name: Name of the run and of its folder; default: architecture, method and sigma.
        runs: Folder of all runs. If the method uses a teacher, the teacher is trained first, in its own folder there.
        epochs: Passes over the training data.
        batch: Inputs per mini-batch. Most methods with m noise samples per input cut each mini-batch into m steps, as
            their published code does; `steps="whole"` takes a single step.
        optimizer: `sgd`, with momentum 0.9, or `adamw`.
        learning_rate: Highest learning rate; default: 0.01 for SGD, 0.001 for AdamW.
        schedule: `cosine`, `step` or `one-cycle`.
        warmup_epochs: Epochs over which the learning rate rises; `one-cycle` has its own rise.
        weight_decay: Weight decay, applied to all parameters.
        augmentation: `none` or, for images, `crop-flip` or `resized-crop-flip`.
        init: Initial weights: a run folder, a file with a state dict, or the name of a bundled model; default: random.
        precision: `fp32`, `tf32` or `bf16`.
        seed: Seed of all random numbers.
        device: Device to train on; default: the GPU if there is one, else the CPU.
        compile: Compile the training steps; default: only for long runs on a GPU.
        workers: Number of processes that read images from files.
        data_dir: Folder of the datasets that are given by name.
        time_limit: Seconds after which the state is saved and OutOfTimeError is raised.
        on_metrics: Called after every epoch, in one process only, with a dictionary of its metrics: `epoch`,
            `learning_rate`, `loss`, `test_accuracy` and `validation_accuracy` if measured, the method's own values, and
            `seconds`. If it raises an error, training stops and can be resumed.
        on_stage: Called with the kind and name of each stage when it begins; returns a callback for its progress.
        **settings: Any other field of `TrainConfig`, such as `batch_norm="synced"` or `label_sigma=0.5`.

    Returns:
        The trained network with its metadata, as `load_checkpoint` returns it. Its `model.network` is the module.

    Raises:
        UsageError: If model, data or a setting is invalid, or the folder contains a run with different settings.
        SmoothcertError: If the run cannot be trained.
        OutOfTimeError: If `time_limit` has passed. The same call resumes the run.

    Example:
        >>> import tempfile
        >>> inputs, labels = torch.randn(64, 5), torch.arange(64) % 2
        >>> def mlp():
        ...     return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     trained = train(mlp, (inputs, labels), sigma=0.5, method="consistency", epochs=1, runs=folder)
        >>> trained.model.network
        Sequential(
          (0): Linear(in_features=5, out_features=8, bias=True)
          (1): ReLU()
          (2): Linear(in_features=8, out_features=2, bias=True)
        )
    """
    if join().size > 1:
        atexit.register(leave)
    _check_settings(settings, method)
    data, dataset = _find_data(train_data, test_data, data_dir)
    factory, architecture = _find_model(model)
    fields = {
        **{"dataset": dataset, "architecture": architecture, "method": method, "sigma": sigma, "seed": seed},
        **{"epochs": epochs, "batch": batch, "schedule": schedule, "warmup_epochs": warmup_epochs},
        "learning_rate": _LEARNING_RATES.get(optimizer, 0.01) if learning_rate is None else learning_rate,
        **{"optimizer": optimizer, "weight_decay": weight_decay, "augmentation": augmentation},
        **{"precision": precision, "init": init or "", "validation": validation, "options": dict(options or {})},
    }
    config = make_config({}, "`train`", **fields, **settings)
    name = f"{architecture}-{method}-{config.sigma:g}" if name is None else name
    config = dataclasses.replace(config, name=name)
    place = choose_device(device)
    join_ranks([config], Path(runs), place)
    paths = train_runs(
        [config],
        runs,
        data=data,
        factory=factory,
        device=place,
        compile=compile,
        workers=workers,
        on_stage=_watching(on_stage, on_metrics, config),
        time_limit=time_limit,
    )
    return load_checkpoint(paths[0], model=factory)


def _check_settings(settings: Mapping[str, Any], method: str) -> None:
    """Raise if a setting is not a field of `TrainConfig`, belongs in `options`, or is determined by an argument."""
    arguments = inspect.signature(train).parameters.keys() - {"settings"}
    fields = {name for names in GROUPS.values() for name in names} - _FROM_ARGUMENT.keys()
    known = known_methods().get(method)
    options = known.options if known else {}
    for name in settings:
        if name in _FROM_ARGUMENT:
            raise UsageError(f"Expected no `{name}`, because it follows from `{_FROM_ARGUMENT[name]}`; omit it.")
        if name in options:
            raise UsageError(f"Expected `{name}`, an option of {method}, in `options={{...}}`.")
        if name not in fields:
            error = unknown_name("argument", name, {*arguments, *fields, *options})
            raise UsageError(f"{error} Options of the method belong in `options={{...}}`.")


def _find_data(train_data: Any, test_data: Any, data_dir: str | Path | None) -> tuple[RunData, str]:
    """Return the data of the run, and the name of its dataset for the configuration."""
    if isinstance(train_data, str | Path):
        if test_data is not None:
            raise UsageError(f"Expected no `test_data` for the dataset {train_data}, which has its own; omit it.")
        return RunImages(data_dir), str(train_data)
    train, test = as_image_data(train_data, "train"), None if test_data is None else as_image_data(test_data, "test")
    for data in (train, test):
        if data is not None:
            check_range(data)
    if test is not None and test.shape != train.shape:
        shapes = f"{list(train.shape)}, but got {list(test.shape)}"
        raise UsageError(f"Expected the inputs of `test_data` to be shaped like those of `train_data`, {shapes}.")
    # The fingerprint prevents runs and teachers from being resumed with different data of the same name.
    return GivenData(train, test), f"{train.name}@{train.fingerprint[:12]}"


def _find_model(model: Any) -> tuple[Factory | None, str]:
    """Return the factory of a user's network (None for a named architecture), and the architecture's name."""
    if isinstance(model, str):
        find_factory(model)  # raises if there is no such architecture
        return None, model
    factory = as_factory(model)
    if isinstance(model, UserModel):
        return factory, model.architecture
    name = type(unwrap(model)).__name__ if isinstance(model, nn.Module) else getattr(model, "__name__", "")
    return factory, name if name.isidentifier() else "model"


def _watching(on_stage: OnStage, on_metrics: OnMetrics | None, config: TrainConfig) -> OnStage:
    """Return a stage callback that also passes each epoch's metrics to `on_metrics`."""
    if on_metrics is None or not current_ranks().first:
        return on_stage

    def begin(kind: str, name: str) -> Callable[[Any], None]:
        show = on_stage(kind, name)

        def progress(step: Any) -> None:
            show(step)
            if isinstance(step, TrainProgress) and step.name == config.name and step.metrics is not None:
                on_metrics(step.metrics)

        return progress

    return begin
