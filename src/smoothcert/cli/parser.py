"""Argument parser with short usage lines and one-line error messages."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from smoothcert.errors import printable
from smoothcert.plugins import FLAG


class _HelpFormatter(argparse.HelpFormatter):
    """Shows optional flags as `[options]` in the usage line; the help lists them by group."""

    def add_usage(self, usage: Any, actions: Iterable[argparse.Action], groups: Any, prefix: Any = None) -> None:
        needed = [action for action in actions if action.required or not action.option_strings]
        # With a prefix, argparse builds the start of a subcommand's usage line, where `[options]` does not belong.
        if prefix is None and not any(action.nargs == argparse.PARSER for action in needed):
            needed.append(argparse.Action([], "options", nargs="?"))
        super().add_usage(usage, needed, [], prefix)


class Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line and suggests the closest option if one is unknown."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": _HelpFormatter, **options})
        self.set_defaults(parser=self)  # `name_flags` needs the parser of the command that was parsed
        text = "Python file that registers models, methods or datasets; can be repeated"
        self.add_argument(FLAG, action="append", metavar="FILE", help=text)

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
        message = printable(message if len(message) <= 600 else f"{message[:300]}...{message[-100:]}")
        self.exit(2, f"{self.prog}: {message}{mark} See `{self.prog} --help`.\n")


def name_flags(message: str, parser: argparse.ArgumentParser) -> str:
    """Replace Python arguments in backticks with the flags of a command, and leave other names unchanged.

    The library's messages refer to function arguments. The flag for an argument is the option with its name as `dest`.

    >>> parser = Parser()
    >>> for flag, name in {"--max": "limit", "--stop": "stop", "--sound": "sound"}.items():
    ...     _ = parser.add_argument(flag, dest=name)
    >>> name_flags("Expected `limit` to be at least 1; omit `stop='budget'` and `sound=True`, not `sigma`.", parser)
    'Expected `--max` to be at least 1; omit `--stop budget` and `--sound`, not `sigma`.'
    """
    flags = {action.dest: action.option_strings[0] for action in parser._actions if action.option_strings}

    def flag_of(match: re.Match[str]) -> str:
        flag, value = flags.get(match["name"]), match["value"]
        if flag is None:
            return match[0]
        return f"`{flag}`" if value in (None, "True") else f"`{flag} {value}`"

    return re.sub(r"""`(?P<name>\w+)(?:=['"]?(?P<value>[^`'"]+)['"]?)?`""", flag_of, message)


def add_several(group: argparse._ActionsContainer, flag: str, **options: Any) -> None:
    """Add an option that takes several values and can be repeated.

    >>> parser = Parser()
    >>> add_several(parser, "--severity", type=int)
    >>> parser.parse_args(["--severity", "3", "--severity", "4", "5"]).severity
    [3, 4, 5]
    """
    group.add_argument(flag, nargs="+", action="extend", **options)
