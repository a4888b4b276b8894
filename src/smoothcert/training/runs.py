"""Train runs from their configurations: prepare and set up each run, then train all runs together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import torch

from smoothcert.distributed.ranks import Ranks, join
from smoothcert.errors import SmoothcertError, UsageError, quote, takes
from smoothcert.models import Factory
from smoothcert.runtime.deadline import Deadline
from smoothcert.runtime.environment import choose_device, facts
from smoothcert.runtime.failures import collected, raise_together
from smoothcert.training.config import TrainConfig, describe
from smoothcert.training.fit import fit_together
from smoothcert.training.prepare import OnStage, Preparation, silent
from smoothcert.training.run_data import RunData, RunImages
from smoothcert.training.run_folder import RunFolder
from smoothcert.training.setup import TrainingRun


def train_run(config: TrainConfig, runs: str | Path, **options: Any) -> Path:
    """Prepare and train one run. `train_runs` trains several runs at once.

    Args:
        config: The configuration of the run, for example from `load_recipe`.
        runs: The folder of all runs. The run, and its teacher if it needs one, get subfolders named after them.
        **options: The keyword arguments of `train_runs`.

    Returns:
        The path of the trained network, which `load_checkpoint` reads.

    Raises:
        SmoothcertError: If the run cannot be trained. The message names the run.
        OutOfTimeError: If `time_limit` has passed. The state is saved; the same call resumes the run.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     images, labels = np.zeros((8, 28, 28), np.uint8), np.arange(8) % 2
        ...     np.savez(f"{folder}/tiny.npz", train_images=images, train_labels=labels,
        ...              test_images=images[:4] + 1, test_labels=labels[:4])
        ...     config = TrainConfig(name="first", dataset=f"{folder}/tiny.npz", epochs=1, batch=4)
        ...     train_run(config, f"{folder}/runs").relative_to(folder).as_posix()
        'runs/first/model.safetensors'
    """
    return train_runs([config], runs, **options)[0]


def join_ranks(configs: Sequence[TrainConfig], runs: Path, device: torch.device) -> Ranks:
    """Join the processes started by a launcher, if any. Raise if their runs, environments or folders differ."""
    ranks = join()
    settings = {name: value for config in configs for name, value in describe(config).items()}
    ranks.require_same_on_all_ranks({**facts(device), **settings})
    ranks.require_shared_folder(runs)
    return ranks


@takes(
    configs=(Iterable, TrainConfig),
    runs=(str, Path),
    data_dir=(str, Path, type(None)),
    device=(str, torch.device),
    compile=(bool, type(None)),
    on_stage=Callable,
    time_limit=(Real, type(None)),
    data=(RunData, type(None)),
    factory=(Callable, type(None)),
)
def train_runs(
    configs: Sequence[TrainConfig],
    runs: str | Path,
    *,
    data_dir: str | Path | None = None,
    device: torch.device | str = "auto",
    compile: bool | None = None,
    workers: int | None = None,
    on_stage: OnStage = silent,
    time_limit: float | None = None,
    data: RunData | None = None,
    factory: Factory | None = None,
) -> list[Path]:
    """Train several runs at once: prepare all runs, then take one step of each run in turn.

    Finished runs are left as they are. Interrupted runs are resumed; on a CPU with the same number of threads, they end
    with bit-identical weights. A run that fails does not stop the others, and its error is raised at the end. With
    several ranks, the error is raised at once.

    Args:
        configs: The configurations of the runs, for example from `load_recipe`.
        runs: The folder of all runs. Each run, and each teacher of a run, gets a subfolder named after it.
        data_dir: Folder of datasets; default: as in `load_dataset`.
        device: Device to train on; default: the GPU if there is one, else the CPU.
        compile: Compile the training steps; default: only for long runs on a GPU.
        workers: Processes that decode image folders; default: this process's share of the cores, at most 16.
        on_stage: Called with the kind and name of each stage when it begins; returns a callback for its progress.
        time_limit: Seconds after which the state of every run is saved and OutOfTimeError is raised.
        data: Source of the data of the runs; default: the datasets that their configurations name.
        factory: Function that creates the networks of the runs; default: from the names of their architectures.

    Returns:
        The paths of the trained networks, which `load_checkpoint` reads, in the order of `configs`.

    Raises:
        UsageError: If `configs` is not a sequence of `TrainConfig` objects, or `workers` is invalid.
        SmoothcertError: If a run cannot be trained. The message names the run.
        OutOfTimeError: If `time_limit` has passed. The same call resumes the runs.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     images, labels = np.zeros((8, 28, 28), np.uint8), np.arange(8) % 2
        ...     np.savez(f"{folder}/tiny.npz", train_images=images, train_labels=labels,
        ...              test_images=images[:4] + 1, test_labels=labels[:4])
        ...     common = {"dataset": f"{folder}/tiny.npz", "epochs": 1, "batch": 4}
        ...     configs = [TrainConfig(name=f"seed{seed}", seed=seed, **common) for seed in range(2)]
        ...     " ".join(file.parent.name for file in train_runs(configs, f"{folder}/runs"))
        'seed0 seed1'
    """
    if isinstance(configs, TrainConfig):
        raise UsageError("Expected `configs` to be a list, but got a single configuration; use `train_run` for it.")
    configs = list(configs)
    for config in configs:
        if not isinstance(config, TrainConfig):
            text = "`TrainConfig` objects, such as `load_recipe` returns"
            raise UsageError(f"Expected `configs` to contain {text}, but got {quote(config)}.")
    if workers is not None and not (isinstance(workers, Integral) and workers >= 0):
        raise UsageError(f"Expected `workers` to be a whole number >= 0, but got {quote(workers)}.")
    deadline, runs = Deadline(time_limit), Path(runs)
    options = {"device": choose_device(device), "compile": compile, "workers": workers, "factory": factory}
    preparation = Preparation(runs, data or RunImages(data_dir), on_stage, deadline, options)
    ready, errors = list[TrainingRun](), list[SmoothcertError]()
    for config in configs:
        with collected(errors):
            if (run := preparation.setup(config)) is not None:
                ready.append(run)
    if any(run.compiled for run in ready):
        on_stage("compile", "the training step")
    if ready:
        progress = on_stage("train", ready[0].config.name if len(ready) == 1 else f"{len(ready)} runs")
        try:
            fit_together(ready, deadline.left, progress)
        except SmoothcertError as error:
            errors.append(error)
    raise_together(errors)
    return [RunFolder(runs / config.name).model for config in configs]
