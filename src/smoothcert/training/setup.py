"""Set up a run: check it, open its folder, connect the ranks, build the network, restore the state, compile.

`setup_run` takes these steps in order and returns a `TrainingRun`, which `smoothcert.training.loop` trains. Of the
objects in a `TrainingRun`, training changes only the stepper and the sampler.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smoothcert.data.image_data import ImageData
from smoothcert.distributed.ranks import Ranks, current_ranks
from smoothcert.errors import Notice, UsageError
from smoothcert.models import Factory, NamedModel, build_model
from smoothcert.training.compute import method_of, pays_to_compile, plan_epoch, split_of
from smoothcert.training.config import TrainConfig
from smoothcert.training.discard_file import read_shares
from smoothcert.training.graph_stepper import GraphStepper
from smoothcert.training.initial_weights import load_initial_weights
from smoothcert.training.packed_labels import PackedLabels
from smoothcert.training.run_folder import RunFolder, SilentRunFolder
from smoothcert.training.run_state import restore_state
from smoothcert.training.sampling import ImageSampler, split_validation
from smoothcert.training.single_inputs import check_single_input, has_single_inputs
from smoothcert.training.stepper import Stepper
from smoothcert.training.streaming import choose_source

SoftLabels = Tensor | PackedLabels


@dataclass(frozen=True)
class TrainingRun:
    """A run that is ready to train from step `start`.

    `measured` maps names of accuracy metrics to the data and the indices of the images to measure them on after every
    epoch. `plan` contains, for every step of an epoch, the position of the step's first image in the epoch's order (see
    `ImageSampler.order`), and the step's number of images. With several ranks, every rank has the same run and takes
    its share of every mini-batch; only rank 0 writes to the folder.
    """

    config: TrainConfig
    folder: RunFolder
    ranks: Ranks
    model: NamedModel
    stepper: Stepper
    sampler: ImageSampler
    plan: list[tuple[int, int]]
    dataset: str
    measured: dict[str, tuple[ImageData, Tensor]]
    start: int
    compiled: bool

    @property
    def total(self) -> int:
        """Number of steps in the whole run."""
        return self.config.epochs * len(self.plan)


def setup_run(
    config: TrainConfig,
    folder: Path,
    train: ImageData,
    test: ImageData | None,
    *,
    factory: Factory | None = None,
    soft: SoftLabels | None = None,
    device: torch.device | str = "cpu",
    compile: bool | None = None,
    workers: int | None = None,
) -> TrainingRun | None:
    """Set up a run for training, or return None if it is finished. All ranks must call this together.

    `train` and `test` are the training and test data. `factory` creates a network that is neither bundled nor
    registered. `soft` contains the soft labels [images, classes], for methods that use them. The other options are as
    in `train_runs`.
    """
    ranks, device = current_ranks(), torch.device(device)
    method, synced = method_of(config), config.batch_norm == "synced"
    if synced and not method.static and ranks.size > 1:
        cause = (
            "`attack='masked'`"
            if config.method == "catrs"
            else f"{config.method}, whose shapes may vary between steps,"
        )
        raise UsageError(f"{config.name}: {cause} cannot be used with `batch_norm='synced'`; choose 'local'.")
    if len(train.classes) < 2:
        raise UsageError(f"Expected training data with at least two classes, but {train.name} has one.")
    if test is not None and (test.labels >= len(train.classes)).any():
        text = f"labels below {len(train.classes)}, the number of classes of the training data"
        raise UsageError(f"Expected test data with {text}, but got label {int(test.labels.max())}.")
    pool, aside = split_validation(len(train), config.validation)
    if config.validation and not len(aside):
        text = f"large enough for at least one of {len(train)} images"
        raise UsageError(f"Expected `validation` to be {text}, but got {config.validation:g}.")
    shares = read_shares(config.discard_file, train.labels) if config.discard_file else None
    run_folder = _open_folder(config, folder, ranks)
    if run_folder is None:
        return None
    ranks.connect(device)
    plan = plan_epoch(len(pool), config.batch, split_of(config))
    if has_single_inputs(plan, ranks, synced):
        check_single_input(new_model(config, train, factory), method, train.shape, config.batch)
    saved = ranks.broadcast_state(run_folder.load_state())
    model = new_model(config, train, factory)
    if config.init and saved is None:
        load_initial_weights(model, config.init)
    if saved is None and ranks.size > 1:
        _take_weights_of_rank0(model, ranks)
    model.to(device)
    soft = soft if method.uses_soft_labels else None
    source = choose_source(train, device, config.augmentation, soft, seed=config.seed, workers=workers)
    options: dict[str, Any] = {"seed": config.seed, "precision": config.precision, "ranks": ranks, "sync": synced}
    kind = GraphStepper if device.type == "cuda" and method.static else Stepper
    stepper = kind(model, method, new_optimizer(model, config), source, **options)
    sampler = ImageSampler(config, len(train), shares, pool)
    start = restore_state(saved, stepper, sampler, len(plan))
    compiled = _compile_steps(stepper, config, compile, plan[0][1], config.epochs * len(plan) - start)
    measured = {"validation_accuracy": (train, aside)} if len(aside) else {}
    if test is not None:
        measured["test_accuracy"] = test.to(device), torch.arange(len(test))
    return TrainingRun(config, run_folder, ranks, model, stepper, sampler, plan, train.name, measured, start, compiled)


def _open_folder(config: TrainConfig, path: Path, ranks: Ranks) -> RunFolder | None:
    """Open the run folder, or return None if the run is finished."""
    folder = RunFolder(path) if ranks.first else SilentRunFolder(path)
    folder.open(config)
    if ranks.broadcast_from_rank0(folder.finished):
        folder.delete_states()  # in case a process was killed right after it wrote the network
        return None
    return folder


def _compile_steps(stepper: Stepper, config: TrainConfig, wanted: bool | None, images: int, steps_left: int) -> bool:
    """Compile steps on `images` images if `wanted` (None: if this saves time) and possible. Return True if compiled."""
    static = stepper.method.static
    if wanted and not static:
        warnings.warn(f"{config.name}: steps run uncompiled, because their shapes may vary.", Notice, stacklevel=3)
    if not static or not (pays_to_compile(config, steps_left, stepper.device) if wanted is None else wanted):
        return False
    stepper.compile(images)
    return True


def new_model(config: TrainConfig, data: ImageData, factory: Factory | None = None) -> NamedModel:
    """Create the network of a run for `data`. Random initial weights depend only on the network and the run's seed."""
    options: dict[str, Any] = {"factory": factory, "mean": data.mean, "std": data.std}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return build_model(config.architecture, data.shape, len(data.classes), **options)


def _take_weights_of_rank0(model: NamedModel, ranks: Ranks) -> None:
    """Copy rank 0's initial weights to every rank: a user's module may have different weights on each rank."""
    tensors = {name: tensor.detach() for name, tensor in chain(model.named_parameters(), model.named_buffers())}
    sent = ranks.broadcast_state(({name: tensor.contiguous() for name, tensor in tensors.items()}, 0))
    for name, value in sent[0].items() if sent else ():
        tensors[name].copy_(value)


def new_optimizer(model: NamedModel, config: TrainConfig) -> torch.optim.Optimizer:
    """Create the optimizer of a network that is already on its device."""
    device = next(model.parameters()).device
    on_gpu = device.type == "cuda"  # if so, the learning rate is a tensor, so that CUDA graphs read its current value
    rate: Any = torch.tensor(config.learning_rate, device=device) if on_gpu else config.learning_rate
    options: dict[str, Any] = {"lr": rate, "weight_decay": config.weight_decay, "fused": on_gpu}
    if config.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), **options, capturable=on_gpu)
    return torch.optim.SGD(model.parameters(), **options, momentum=config.momentum)
