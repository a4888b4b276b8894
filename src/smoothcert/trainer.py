"""The one training loop. A method says what a step's loss is; everything else is here, top to bottom."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.card import model_card
from smoothcert.config import TrainConfig
from smoothcert.data.image_data import ImageData
from smoothcert.data.streaming import choose_source
from smoothcert.deadline import Deadline, OutOfTimeError
from smoothcert.engine.agreement import decide
from smoothcert.engine.counting import is_out_of_memory
from smoothcert.engine.precision import numerics
from smoothcert.engine.ranks import Part, Ranks, joined
from smoothcert.engine.resuming import restore_state, take_state
from smoothcert.engine.stepping import Stepper, new_stream
from smoothcert.environment import describe_environment
from smoothcert.errors import Notice, SmoothcertError, UsageError
from smoothcert.models import Classifier, create_model
from smoothcert.packed_labels import PackedLabels
from smoothcert.philox import Purpose, normal, permutation
from smoothcert.runs import RunFolder, SilentRunFolder
from smoothcert.workload import method_of, split_of, step_passes

_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_BETWEEN_SAVES = 60.0
_PASSES_THAT_PAY = 150e6  # for the time compilation takes; measured, see benchmarks/README.md


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


def fit(
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
    time_limit: float | None = None,
) -> Path:
    """Train a network and return its file; goes on where an earlier call was interrupted, to the same weights.

    A finished run is left as it is, one of another configuration is refused. `soft` holds the training images' soft
    labels [images, classes], for a method that uses them. Steps are compiled where that pays, unless `compile` says
    so or not. `workers` processes decode image folders (default: this process's share of the cores). After `time_limit`
    seconds the state is saved and OutOfTimeError raised.
    """
    options: dict[str, Any] = {"device": device, "compile": compile, "workers": workers}
    run = Training(config, folder, train, test, soft=soft, on_progress=on_progress, **options)
    fit_together([run], time_limit)
    return run.folder.model


def fit_together(runs: Sequence[Training], time_limit: float | None = None) -> None:
    """Train several runs at once, a step of each in turn; on a CUDA device each has a stream of its own.

    One that fails does not stop the others; what went wrong is raised at the end.
    """
    deadline = Deadline(time_limit)
    left = [(run, run.steps(), new_stream(run.device)) for run in runs if not run.finished]
    if any(run.on_gpu for run, *_ in left):
        torch.cuda.synchronize()
    errors: list[SmoothcertError] = []
    try:
        while left:
            out_of_time = deadline.passed
            for lane in list(left):
                run, steps, stream = lane
                run.out_of_time = out_of_time
                try:
                    with torch.cuda.stream(stream):
                        if next(steps, None) is None:
                            left.remove(lane)
                except SmoothcertError as error:
                    if not run.survives(error):
                        raise
                    errors.append(error)
                    left.remove(lane)
    finally:
        for _, steps, _ in left:
            steps.close()
    raise_together(errors)


def raise_together(errors: Sequence[SmoothcertError]) -> None:
    """Raise what went wrong with some of several runs, if anything did; out of time if any of them was."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        kind = OutOfTimeError if any(isinstance(error, OutOfTimeError) for error in errors) else SmoothcertError
        raise kind(" ".join(str(error) for error in errors)) from errors[0]


def pays_to_compile(config: TrainConfig, steps: int, device: torch.device) -> bool:
    """Whether so many steps of a run are enough work on a device to repay the compiler's time."""
    return device.type == "cuda" and steps * step_passes(config) >= _PASSES_THAT_PAY


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
        self.device, self.out_of_time, self.compiled = torch.device(device), False, False
        self.on_gpu = self.device.type == "cuda"
        self.ranks = joined()
        self.folder = RunFolder(folder) if self.ranks.first else SilentRunFolder(folder)
        method = method_of(config)
        if config.batch_norm == "synced" and not method.static and self.ranks.size > 1:
            raise UsageError(f"{config.name}: `--attack masked` cannot be used with `--batch-norm synced`.")
        if method.uses_soft_labels and soft is None:
            raise UsageError(f"{config.name}: {config.method} needs soft labels of the training images.")
        self.folder.open(config)
        self.finished = decide(self.ranks, self.folder.finished)
        if self.finished:
            self.folder.state.unlink(missing_ok=True)  # a kill just after the network was written may have left it
            return
        self.ranks.connect(self.device)
        self.model = model = _new_model(config, train).to(self.device)
        soft = soft if method.uses_soft_labels else None
        self.images = len(train)
        self.source = choose_source(train, self.device, config.augmentation, soft, seed=config.seed, workers=workers)
        rate: Any = torch.tensor(config.learning_rate, device=self.device) if self.on_gpu else config.learning_rate
        optimizer = torch.optim.SGD(
            model.parameters(), rate, momentum=config.momentum, weight_decay=config.weight_decay, fused=self.on_gpu
        )
        self.plan = plan_epoch(len(train), config.batch, split_of(config))
        self.total = config.epochs * len(self.plan)
        self.stepper = Stepper(
            model,
            method,
            optimizer,
            self.source,
            seed=config.seed,
            precision=config.precision,
            graphs=self.on_gpu and method.static,
            ranks=self.ranks,
            sync=config.batch_norm == "synced",
        )
        self.start = restore_state(self.ranks.broadcast(self.folder.load_state()), self.stepper)
        pays = pays_to_compile(config, self.total - self.start, self.device)
        if compile and not method.static:
            warnings.warn(f"{config.name}: steps run uncompiled: their shapes vary.", Notice, stacklevel=2)
        self.compiled = method.static and (pays if compile is None else compile)
        if self.compiled:
            self.stepper.compile(self.plan[0][1])

    def steps(self) -> Generator[int]:
        """Take the steps that are left, yielding the number done after each; then write the network and its card."""
        with self.folder.locked():
            if decide(self.ranks, self.folder.finished):  # by another process, since this one looked
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

    def schedule(self) -> Iterator[tuple[int, Part, Tensor]]:
        """Yield every step that is left, with this rank's part of the mini-batch and the indices of its images."""
        order = torch.empty(0)
        for step in range(self.start, self.total):
            epoch, number = divmod(step, len(self.plan))
            if number == 0 or step == self.start:
                order = permutation(self.config.seed, (epoch, 0, Purpose.ORDER), self.images).to(self.source.home)
            first, size = self.plan[number]
            part = self.ranks.part(size)
            yield step, part, order[first + part.first : first + part.first + part.size]

    def _steps(self) -> Generator[int]:
        config, folder, stepper, total = self.config, self.folder, self.stepper, self.total
        segment = {"first_step": self.start, "processes": self.ranks.size, **describe_environment(self.device)}
        began = epoch_began = saved = time.monotonic()
        if self.start % len(self.plan):  # an epoch that an earlier start began takes as long as all of it
            epoch_began -= folder.seconds_since(self.start // len(self.plan), self.start)
        clock = Clock(self.ranks)
        stepper.model.train()
        for step, inputs in zip(range(self.start, total), self.source.stream(self.schedule()), strict=True):
            epoch, number = divmod(step, len(self.plan))
            rate = config.learning_rate_at(epoch, step / total)
            stepper.run(inputs, self.plan[number][1], epoch, step, rate)
            done, ends = step + 1, number + 1 == len(self.plan)
            now, out_of_time = clock.tick(self.out_of_time, ends)
            if now is not None:
                means = self._look(number + 1)
                metrics = None
                if ends:
                    metrics = {"epoch": epoch, "learning_rate": rate, **means}
                    metrics["test_accuracy"] = noisy_accuracy(stepper.model, self.test, config, self.ranks)
                    metrics["seconds"] = round(time.monotonic() - epoch_began, 3)
                    folder.write_metrics(metrics)
                    stepper.sums.zero_()
                    epoch_began = time.monotonic()
                if ends or out_of_time or now - saved > _SECONDS_BETWEEN_SAVES:
                    folder.save_state(take_state(stepper), done)
                    saved = time.monotonic()
                    folder.write_segment({**segment, **self._spent(saved - began)})
                if self.on_progress:
                    self.on_progress(TrainProgress(config.name, done, total, self.start, epoch, means["loss"], metrics))
                if out_of_time and done < total:
                    text = f"{config.name}: time is up after {done:,} of {total:,} steps; the state is saved."
                    raise OutOfTimeError(text)
            yield done
        self._finish()

    def _spent(self, seconds: float) -> dict[str, Any]:
        """Return the time of this start and, on a GPU, the most memory of the process: of all runs in it."""
        memory = {"peak_memory": torch.cuda.max_memory_allocated(self.device)} if self.on_gpu else {}
        return {"seconds": round(seconds, 3), **memory}

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

    def _finish(self) -> None:
        config, folder = self.config, self.folder
        folder.write_network(
            model_card(config, folder.read_metrics(), describe_environment(self.device)),
            self.model,
            name=config.name,
            dataset=self.test.name,
            sigma=config.sigma,
            method=config.method,
            epoch=config.epochs,
            seed=config.seed,
        )
        decide(self.ranks, True)  # nobody goes on before the network is there


class Clock:
    """Says when to look at a run, on all ranks at the same step: about once a second, by rank 0's time."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks, self._looked = ranks, time.monotonic()
        self._steps, self._next = 0, 1

    def tick(self, out_of_time: bool, due: bool) -> tuple[float | None, bool]:
        """Count a step; return the time if this is one to look at, and whether the run's time is up.

        Several ranks only ask rank 0 after as many steps as it took, last time, to fill a second.
        """
        self._steps += 1
        if not due and self._steps < self._next:
            return None, False
        now = time.monotonic()
        stride = 1 if self.ranks.size == 1 else max(1, int(self._steps / max(now - self._looked, 1e-3)))
        look = due or out_of_time or now - self._looked >= _SECONDS_BETWEEN_LOOKS
        look, stop, self._next = decide(self.ranks, (look, out_of_time, stride))
        if not look:
            self._next += self._steps
            return None, False
        self._looked, self._steps = now, 0
        return now, stop


def plan_epoch(images: int, batch: int, split: int) -> list[tuple[int, int]]:
    """Return (first, size) of every step of an epoch.

    Each mini-batch of consecutive images is cut into `split` equal steps; what does not divide is dropped, and the
    last, smaller mini-batch is cut likewise, as published.

    >>> plan_epoch(10, 4, 2)
    [(0, 2), (2, 2), (4, 2), (6, 2), (8, 1), (9, 1)]
    >>> plan_epoch(9, 4, 2)
    [(0, 2), (2, 2), (4, 2), (6, 2)]
    """
    steps = []
    for first in range(0, images, batch):
        size = min(batch, images - first) // split
        steps += [(first + number * size, size) for number in range(split) if size]
    if not steps:
        raise UsageError(f"{images} images are too few for steps of a {split}th of a mini-batch; try `--steps whole`.")
    return steps


def noisy_accuracy(model: nn.Module, data: ImageData, config: TrainConfig, ranks: Ranks | None = None) -> float:
    """Return the base classifier's accuracy in percent under one noise an image: the field's quick look."""
    ranks = ranks or Ranks()
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    right = torch.zeros((), dtype=torch.int64, device=device)
    with torch.no_grad(), numerics(config.precision, device):
        mine = torch.arange(ranks.rank, len(data), ranks.size, device=data.labels.device)
        most = 1000 if device.type == "cpu" else 10_000
        for chosen in torch.split(mine, max(1, min(most, 2**24 // data.shape.numel()))):
            images = data.floats(chosen, device)
            noise = normal(config.seed, (chosen.to(device), 0, Purpose.EVALUATION), images[0].numel(), device=device)
            scores = model(images + config.sigma * noise.view_as(images))
            right += (scores.argmax(dim=1) == data.labels[chosen].to(device)).sum()
    model.train(training)
    return round(100 * int(ranks.total(right)) / len(data), 4)


def _new_model(config: TrainConfig, data: ImageData) -> Classifier:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return create_model(
            config.architecture, len(data.classes), in_channels=data.shape[0], mean=data.mean, std=data.std
        )
