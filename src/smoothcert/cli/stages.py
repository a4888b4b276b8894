"""Progress of commands that do several things in turn, such as training, labeling and certifying."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from smoothcert.cli.progress import COMPILING, ProgressBar, say


class Stages(ExitStack):
    """Shows one progress bar per stage, one at a time."""

    title: str | None = None

    def begin(self, kind: str, name: str) -> Callable[[Any], None]:
        """Close the previous stage's bar and return a callback that shows the progress of the next stage."""
        self.close()
        self.title = None
        if kind == "compile":
            say(COMPILING.format(name))
            return lambda progress: None
        if kind == "certify":
            name = f"certify {name}"
        latest: dict[str, Any] = {}  # by run, if several are trained at once

        def train(progress: Any) -> None:
            latest[progress.name] = progress
            runs = latest.values()
            done, total, start = (sum(getattr(run, key) for run in runs) for key in ("step", "total", "start"))
            note = f"epoch {progress.epoch}, "
            note += (
                "votes on {:,} of {:,} images".format(*progress.votes)
                if progress.votes
                else f"loss {progress.loss:.4f}"
            )
            if progress.metrics:
                for key, what in (("test_accuracy", "accuracy"), ("validation_accuracy", "validation accuracy")):
                    if key in progress.metrics:
                        note += f", {what} under noise {progress.metrics[key]:.1f}%"
            bar = self.bar_for(name, total, "steps", start)
            bar.total, bar.start = total, start
            bar.update(done, f"{progress.name}: {note}" if len(latest) > 1 else note)

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
