"""Read and verify the results files of a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from smoothcert.report.tables.entries import stated_sigma
from smoothcert.results.reader import read_results
from smoothcert.results.records import Results
from smoothcert.results.verify import read_verified, verify_limit


class ResultsReader:
    """Reader of results files that reads each file once and, unless `unverified`, raises if rows are invalid.

    Rows must agree with the votes and the sidecar beside the file. Published files have neither votes nor a sidecar; if
    `given` or the file name states their noise level, their radii must be possible at this level. `on_read` is called
    with the number of files read so far.
    """

    def __init__(
        self, given: Mapping[str, Any], *, unverified: bool = False, on_read: Callable[[int], None] | None = None
    ) -> None:
        self.given, self.unverified, self.on_read = given, unverified, on_read
        self._known: dict[Path, Results] = {}

    def read(self, path: Path, name: str | None = None) -> Results:
        """Return the content of a file; `name` (default: the file name) may state the noise level."""
        if path not in self._known:
            self._known[path] = read_results(path) if self.unverified else read_verified(path)
            if self.on_read:
                self.on_read(len(self._known))
        results = self._known[path]
        sigma = None if results.about else stated_sigma(name or results.name, self.given)
        if sigma and not self.unverified:
            verify_limit(path, results, sigma)
        return results
