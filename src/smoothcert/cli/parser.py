"""The argument parser: short usage lines, and errors of one sentence."""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn


class _HelpFormatter(argparse.HelpFormatter):
    """Abbreviates optional flags in the usage line; the help lists them by group."""

    def add_usage(self, usage: Any, actions: Iterable[argparse.Action], groups: Any, prefix: Any = None) -> None:
        needed = [action for action in actions if action.required or not action.option_strings]
        # With a prefix, argparse asks for the beginning of a subcommand's usage.
        if prefix is None and not any(action.nargs == argparse.PARSER for action in needed):
            needed.append(argparse.Action([], "options", nargs="?"))
        super().add_usage(usage, needed, [], prefix)


class Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line and names the nearest option for an unknown one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": _HelpFormatter, **options})

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, and exit if there are unknown arguments."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            near = difflib.get_close_matches(unknown[0].partition("=")[0], self._option_string_actions, n=1)
            self.error(f"unknown argument {unknown[0]}{f'; did you mean {near[0]}?' if near else ''}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """Print the error without argparse's usage line, and exit."""
        mark = "" if message.endswith("?") else "."
        self.exit(2, f"{self.prog}: {message}{mark} See `{self.prog} --help`.\n")


def words_to_complete() -> list[str]:
    """Return the command line that a shell asks to complete, empty if it does not ask."""
    return os.environ["COMP_LINE"].split() if "_ARGCOMPLETE" in os.environ and "COMP_LINE" in os.environ else []


def complete_arguments(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks for completions, and exit; do nothing without argcomplete."""
    if words_to_complete():
        try:
            import argcomplete
        except ImportError:
            return
        argcomplete.autocomplete(parser)


def add_several(group: argparse._ActionsContainer, flag: str, **options: Any) -> None:
    """Add an option that takes several values and can be repeated.

    >>> parser = Parser()
    >>> add_several(parser, "--severity", type=int)
    >>> parser.parse_args(["--severity", "3", "--severity", "4", "5"]).severity
    [3, 4, 5]
    """
    group.add_argument(flag, nargs="+", action="extend", **options)
