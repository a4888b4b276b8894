"""The one training loop, top to bottom. A method says what a step's loss is; what is written is in `logbook`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smoothcert.data.image_data import ImageData
from smoothcert.distributed.ranks import BatchShare, current_ranks
from smoothcert.errors import Notice, SmoothcertError, UsageError
from smoothcert.models import Classifier, create_model
from smoothcert.philox import Purpose, permutation
from smoothcert.runtime.deadline import INTERRUPTED, Deadline, OutOfTimeError
from smoothcert.smoothing.counting import is_out_of_memory
from smoothcert.training.compute import method_of, pays_to_compile, split_of
from smoothcert.training.config import TrainConfig
from smoothcert.training.epochs import noisy_accuracy, plan_epoch
from smoothcert.training.pacing import Clock
from smoothcert.training.packed_labels import PackedLabels
from smoothcert.training.run_folder import RunFolder, SilentRunFolder
from smoothcert.training.run_log import Logbook
from smoothcert.training.run_state import restore_state
from smoothcert.training.stepper import Stepper
from smoothcert.training.streaming import choose_source


@dataclass(frozen=True)
class TrainProgress:
    """Where a run is: steps done of all, those taken before this process, and the epoch's loss so far."""

    name: str
    step: int
    total: int
    start: int
    epoch: int
    loss: float
    metrics: dict[str, Any] | None = None


OnProgress = Callable[[TrainProgress], None]


class Training:
    """One run: its network, optimiser and position, and the steps that are left of it.

    All ranks of a group make it together; each has its part of every mini-batch, and rank 0 writes the folder.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: Path,
        train: ImageData,
        test: ImageData,
        *,
        soft: Tensor | PackedLabels | None = None,
        device: torch.device | str = "cpu",
        compile: bool | None = None,
        workers: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.config, self.test, self.on_progress = config, test.to(device), on_progress
        self.device, self.deadline, self.compiled = torch.device(device), Deadline(None), False
        self.on_gpu = self.device.type == "cuda"
        self.ranks = current_ranks()
        self.folder = RunFolder(folder) if self.ranks.first else SilentRunFolder(folder)
        method = method_of(config)
        if config.batch_norm == "synced" and not method.static and self.ranks.size > 1:
            raise UsageError(f"{config.name}: `--attack masked` cannot be used with `--batch-norm synced`.")
        if method.uses_soft_labels and soft is None:
            raise UsageError(f"{config.name}: {config.method} needs soft labels of the training images.")
        self.folder.open(config)
        self.finished = self.ranks.broadcast_from_rank0(self.folder.finished)
        if self.finished:
            self.folder.state.unlink(missing_ok=True)  # a kill just after the network was written may have left it
            return
        self.ranks.connect(self.device)
        self.model = model = new_model(config, train).to(self.device)
        soft = soft if method.uses_soft_labels else None
        self.images = len(train)
        self.source = choose_source(train, self.device, config.augmentation, soft, seed=config.seed, workers=workers)
        self.plan = plan_epoch(len(train), config.batch, split_of(config))
        self.total = config.epochs * len(self.plan)
        self.stepper = Stepper(
            model,
            method,
            new_optimizer(model, config),
            self.source,
            seed=config.seed,
            precision=config.precision,
            graphs=self.on_gpu and method.static,
            ranks=self.ranks,
            sync=config.batch_norm == "synced",
        )
        self.start = restore_state(self.ranks.broadcast_state(self.folder.load_state()), self.stepper)
        pays = pays_to_compile(config, self.total - self.start, self.device)
        if compile and not method.static:
            warnings.warn(f"{config.name}: steps run uncompiled: their shapes vary.", Notice, stacklevel=2)
        self.compiled = method.static and (pays if compile is None else compile)
        if self.compiled:
            self.stepper.compile(self.plan[0][1])

    def steps(self) -> Generator[int]:
        """Take the steps that are left, yielding the number done after each; then write the network and its card."""
        with self.folder.locked():
            if self.ranks.broadcast_from_rank0(self.folder.finished):  # by another process, since this one looked
                return
            try:
                yield from self._steps()
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                text = "the device's memory is full; train fewer runs at once, or with a smaller `--batch`"
                raise SmoothcertError(f"{self.config.name}: {text}.") from error

    def survives(self, error: SmoothcertError) -> bool:
        """Whether other runs can go on after an error of this one: not where ranks that have no error wait for it."""
        return self.ranks.size == 1 or isinstance(error, OutOfTimeError)

    def schedule(self) -> Iterator[tuple[int, BatchShare, Tensor]]:
        """Yield every step that is left, with this rank's part of the mini-batch and the indices of its images."""
        order = torch.empty(0)
        for step in range(self.start, self.total):
            epoch, number = divmod(step, len(self.plan))
            if number == 0 or step == self.start:
                order = permutation(self.config.seed, (epoch, 0, Purpose.ORDER), self.images).to(self.source.home)
            first, size = self.plan[number]
            part = self.ranks.share_of(size)
            yield step, part, order[first + part.first : first + part.first + part.size]

    def _steps(self) -> Generator[int]:
        config, stepper, total, epoch_steps = self.config, self.stepper, self.total, len(self.plan)
        places = {"processes": self.ranks.size, "first_step": self.start, "epoch_steps": epoch_steps}
        clock, logbook = Clock(self.ranks), Logbook(self.folder, self.device, **places)
        stepper.model.train()
        for step, inputs in zip(range(self.start, total), self.source.stream(self.schedule()), strict=True):
            epoch, number = divmod(step, epoch_steps)
            rate = config.learning_rate_at(epoch, step / total)
            stepper.run(inputs, self.plan[number][1], epoch, step, rate)
            done, ends = step + 1, number + 1 == epoch_steps
            look, reason = clock.tick(self.deadline.reason, ends)
            if look:
                means, metrics = self._look(number + 1), None
                if ends:
                    accuracy = noisy_accuracy(stepper.model, self.test, config, self.ranks)
                    line = {"epoch": epoch, "learning_rate": rate, **means, "test_accuracy": accuracy}
                    metrics = logbook.write_epoch(line)
                    stepper.sums.zero_()
                if ends or reason or logbook.save_is_due:
                    logbook.save(stepper, done)
                if self.on_progress:
                    self.on_progress(TrainProgress(config.name, done, total, self.start, epoch, means["loss"], metrics))
                if reason and done < total:
                    self.deadline.interrupted |= reason == INTERRUPTED  # on whichever rank it was
                    text = f"{config.name}: {reason} after {done:,} of {total:,} steps; the state is saved."
                    raise OutOfTimeError(text)
            yield done
        logbook.write_network(config, self.model, self.test.name)
        self.ranks.wait_for_rank0()  # nobody goes on before the network is there

    def _look(self, steps: int) -> dict[str, float]:
        """Read the sums back, and stop a run that has diverged before a bad state is saved."""
        if (bad := int(self.stepper.first_bad)) >= 0:
            state = self.folder.state
            good = f"the last good state is {state}" if state.is_file() else "no state was saved before"
            raise SmoothcertError(
                f"{self.config.name}: the loss of {self.config.method} is not a reasonable number at step {bad:,}; "
                f"{good}. A smaller `--learning-rate` may help."
            )
        sums = self.stepper.sums.tolist()
        return {name: value / steps for name, value in zip(self.stepper.names, sums, strict=True)}


def new_model(config: TrainConfig, data: ImageData) -> Classifier:
    """Return the network that a run begins with, which its seed decides."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return create_model(
            config.architecture, len(data.classes), in_channels=data.shape[0], mean=data.mean, std=data.std
        )


def new_optimizer(model: Classifier, config: TrainConfig) -> torch.optim.SGD:
    """Return the optimiser of a run, for a network that is where it is to be trained."""
    device = next(model.parameters()).device
    on_gpu = device.type == "cuda"  # there the rate is a tensor, which a captured step reads anew each time
    rate: Any = torch.tensor(config.learning_rate, device=device) if on_gpu else config.learning_rate
    return torch.optim.SGD(
        model.parameters(), rate, momentum=config.momentum, weight_decay=config.weight_decay, fused=on_gpu
    )
