"""Progress of commands that train, label and certify in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from smoothcert.cli.progress import COMPILING, ProgressBar, say


class Stages:
    """Shows one progress bar per stage, one at a time."""

    def __init__(self) -> None:
        self.bar: ProgressBar | None = None
        self.latest: dict[str, Any] = {}

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar:
            self.bar.__exit__()

    def begin(self, kind: str, name: str) -> Callable[[Any], None]:
        """Close the previous stage's bar and return a callback that shows the progress of the next stage."""
        self.__exit__()
        self.bar, self.latest = None, {}
        if kind == "compile":
            say(COMPILING.format(name))
            return lambda progress: None
        show = {"train": self._train, "label": self._count, "certify": self._count}[kind]
        title = f"certify {name}" if kind == "certify" else name
        return lambda progress: show(title, progress)

    def _open(self, title: str, total: int, unit: str, start: int) -> ProgressBar:
        if self.bar is None:
            self.bar = ProgressBar(title, total, unit, start).__enter__()
        return self.bar

    def _train(self, name: str, progress: Any) -> None:
        self.latest[progress.name] = progress
        runs = self.latest.values()
        done, total, start = (sum(getattr(run, key) for run in runs) for key in ("step", "total", "start"))
        note = f"epoch {progress.epoch + 1}, loss {progress.loss:.4f}"
        if progress.metrics:
            note += f", accuracy under noise {progress.metrics['test_accuracy']:.1f}%"
        if len(runs) > 1:
            note = f"{progress.name}: {note}"
        bar = self._open(name, total, "steps", start)
        bar.total, bar.start = total, start
        bar.update(done, note)

    def _count(self, name: str, progress: Any) -> None:
        self._open(name, progress.total, "images", progress.done).update(progress.done)
