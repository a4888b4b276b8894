"""Progress of commands that do several things in turn, such as training, labeling and certifying."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from smoothcert.cli.progress import COMPILING, ProgressBar, say

if TYPE_CHECKING:
    from smoothcert.training.loop import TrainProgress


class Stages(ExitStack):
    """Shows one progress bar per stage, one at a time."""

    title = ""

    def begin(self, kind: str, name: str) -> Callable[[Any], None]:
        """Close the previous stage's bar and return a callback that shows the progress of the next stage."""
        self.close()
        self.title = ""
        if kind == "compile":
            say(COMPILING.format(name))
            return lambda progress: None
        if kind == "certify":
            name = f"certify {name}"
        latest: dict[str, TrainProgress] = {}  # by run, if several are trained at once

        def train(progress: TrainProgress) -> None:
            latest[progress.name] = progress
            runs = latest.values()
            total, start = sum(run.total for run in runs), sum(run.start for run in runs)
            bar = self.bar_for(name, total, "steps", start)
            bar.total, bar.start = total, start
            note = _describe_training(progress)
            bar.update(sum(run.step for run in runs), f"{progress.name}: {note}" if len(latest) > 1 else note)

        def count(progress: Any) -> None:
            self.bar_for(name, progress.total, "images", progress.done).update(progress.done)

        return train if kind == "train" else count

    def counter(self, unit: str) -> Callable[[str, int, int | None], None]:
        """Return a callback that takes a title, the units done and their total, and shows a bar per title."""
        return lambda title, done, total: self.bar_for(title, total, unit).update(done)

    def bar_for(self, title: str, total: int | None, unit: str, start: int = 0) -> ProgressBar:
        """Return the bar with this title. If the title is new, close the previous bar and open a new one."""
        if title != self.title:
            self.close()
            self.title, self.bar = title, self.enter_context(ProgressBar(title, total, unit, start))
        return self.bar


def _describe_training(progress: TrainProgress) -> str:
    votes, metrics = progress.votes, progress.metrics or {}
    parts = [f"epoch {progress.epoch}"]
    parts.append(f"votes on {votes[0]:,} of {votes[1]:,} images" if votes else f"loss {progress.loss:.4f}")
    for key, title in (("test_accuracy", "accuracy"), ("validation_accuracy", "validation accuracy")):
        if key in metrics:
            parts.append(f"{title} under noise {metrics[key]:.1f}%")
    return ", ".join(parts)
