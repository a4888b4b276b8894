"""The training loop of one run."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from smoothcert.distributed.ranks import BatchShare
from smoothcert.errors import SmoothcertError, is_out_of_memory
from smoothcert.runtime.deadline import INTERRUPTED, Deadline, OutOfTimeError
from smoothcert.training.batches import Inputs
from smoothcert.training.image_votes import count_correct, noisy_accuracy
from smoothcert.training.pacing import Clock
from smoothcert.training.run_log import RunLog
from smoothcert.training.setup import TrainingRun


@dataclass(frozen=True)
class TrainProgress:
    """Progress of a run: `step` of `total` steps are done, `start` of them by earlier processes.

    `loss` is the mean over the epoch so far. After the last step of an epoch, `metrics` contains the epoch's metrics.
    While the network votes on training images, `votes` is (finished images, all images) and `loss` is NaN.
    """

    name: str
    step: int
    total: int
    start: int
    epoch: int
    loss: float
    metrics: dict[str, Any] | None = None
    votes: tuple[int, int] | None = None


OnProgress = Callable[[TrainProgress], None]


def train_loop(run: TrainingRun, deadline: Deadline, on_progress: OnProgress | None = None) -> Generator[int]:
    """Take the remaining steps of a run, then write its network. After each step, yield the number of completed steps.

    About once a second, and after every epoch, the loop reads the loss and other metrics from the device and reports
    progress. It saves the state after every epoch and once a minute. On an interrupt or after the time limit, it saves
    the state and raises OutOfTimeError.
    """
    config, folder, ranks, stepper = run.config, run.folder, run.ranks, run.stepper
    total, epoch_steps = run.total, len(run.plan)
    with folder.locked(), _out_of_memory_explained(config.name):
        folder.claim(config)
        if ranks.broadcast_from_rank0(folder.finished):  # another process may have finished it since `setup_run`
            return
        clock, log = Clock(ranks), RunLog(run)
        stepper.model.train()
        for step, inputs in _scheduled_inputs(run, deadline, on_progress):
            epoch, number = divmod(step, epoch_steps)
            rate = config.learning_rate_at(epoch, step / total)
            stepper.set_position(epoch, step, rate)
            stepper.take_step(inputs, run.plan[number][1])
            done, epoch_ends = step + 1, number + 1 == epoch_steps
            report_is_due, stop_reason = clock.tick(deadline.reason, epoch_ends)
            if report_is_due:
                means, metrics = _read_means(run, number + 1), None
                if epoch_ends:
                    accuracies = {
                        name: noisy_accuracy(stepper.model, data, config, ranks, indices)
                        for name, (data, indices) in run.measured.items()
                    }
                    metrics = log.write_epoch({"epoch": epoch, "learning_rate": rate, **means, **accuracies})
                    stepper.sums.zero_()
                if epoch_ends or stop_reason or log.save_is_due:
                    log.save(done)
                if on_progress:
                    on_progress(TrainProgress(config.name, done, total, run.start, epoch, means["loss"], metrics))
                if stop_reason and done < total:
                    deadline.interrupted |= stop_reason == INTERRUPTED  # another rank may have been interrupted
                    raise _stopped(run, stop_reason, done)
            yield done
        log.write_network()
        ranks.wait_for_rank0()  # so that every rank finds the network


def _scheduled_inputs(
    run: TrainingRun, deadline: Deadline, on_progress: OnProgress | None
) -> Iterator[tuple[int, Inputs]]:
    """Yield every remaining step with its inputs.

    Batch sources read ahead. So that they never read images chosen with outdated weights, each schedule ends where the
    next update of the image weights is due, and the next schedule begins after this update.
    """
    config, source, epoch_steps, first = run.config, run.stepper.source, len(run.plan), run.start
    while first < run.total:
        epoch, number = divmod(first, epoch_steps)
        if number == 0 and config.chooses_images_at(epoch):
            _choose_images(run, epoch, deadline, on_progress)
        later = (e for e in range(epoch + 1, config.epochs) if config.chooses_images_at(e))
        end = epoch_steps * next(later, config.epochs)
        yield from zip(range(first, end), source.stream(_batch_schedule(run, first, end)), strict=True)
        first = end


def _choose_images(run: TrainingRun, epoch: int, deadline: Deadline, on_progress: OnProgress | None) -> None:
    """Update the image weights from the network's votes on the training images. All ranks use the weights of rank 0.

    In a single process, an interrupt stops voting at once: all steps are saved, and a resumed run repeats the votes.
    So does the time limit, but only after a first step, so that every process makes progress. With several ranks, all
    finish voting before they stop, because the others would wait for one that stops early.
    """
    steps = epoch * len(run.plan)

    def report(done: int, total: int) -> None:
        if run.ranks.size == 1 and (deadline.interrupted or (deadline.reason and steps > run.start)):
            raise _stopped(run, deadline.reason, steps)
        if on_progress:
            place = steps, run.total, run.start, epoch
            on_progress(TrainProgress(run.config.name, *place, loss=math.nan, votes=(done, total)))

    model, source = run.stepper.model, run.stepper.source
    vote = partial(count_correct, model, source, run.config, epoch, ranks=run.ranks, on_progress=report)
    run.sampler.choose(epoch, vote)
    if state := run.ranks.broadcast_state((run.sampler.state(), 0)):
        run.sampler.restore(state[0], epoch + 1)


def _stopped(run: TrainingRun, reason: str, done: int) -> OutOfTimeError:
    state = "the state is saved" if done else "there is no state to save yet"
    return OutOfTimeError(f"{run.config.name}: {reason} after {done:,} of {run.total:,} steps; {state}.")


def _batch_schedule(run: TrainingRun, first: int, end: int) -> Iterator[tuple[int, BatchShare, Tensor]]:
    """Yield (step, share of this rank, indices of the images in this share) for the steps from `first` to `end` - 1."""
    order = torch.empty(0)
    for step in range(first, end):
        epoch, number = divmod(step, len(run.plan))
        if number == 0 or step == first:
            order = run.sampler.order(epoch).to(run.stepper.source.home)
        position, size = run.plan[number]
        share = run.ranks.share_of(size)
        yield step, share, order[position + share.first : position + share.first + share.size]


def _read_means(run: TrainingRun, steps: int) -> dict[str, float]:
    """Return the means of loss and metrics over an epoch's first `steps` steps. Raise if the run has diverged."""
    stepper = run.stepper
    if (bad := int(stepper.first_bad)) >= 0:
        state = run.folder.state
        good = f"the last good state is {state}" if state.is_file() else "no state was saved before that"
        raise SmoothcertError(
            f"{run.config.name}: the loss of {run.config.method} diverged (NaN or above 1e6) at step {bad:,}; "
            f"{good}. A smaller `learning_rate` may help."
        )
    return {name: value / steps for name, value in zip(stepper.names, stepper.sums.tolist(), strict=True)}


@contextmanager
def _out_of_memory_explained(name: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        text = "the device's memory is full; train fewer runs at once, or use a smaller `batch`"
        raise SmoothcertError(f"{name}: {text}.") from error
