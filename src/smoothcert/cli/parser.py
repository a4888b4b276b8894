"""The parser: options of several values may stand before a command's arguments, and errors are one sentence."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from typing import Any, NoReturn


class Several(argparse.Action):
    """An option with one or more values, `--severity 3 5`, which may be given again."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, value: Any, option_string: str | None = None
    ) -> None:
        """Add a value to those before it; a default gives way to the first."""
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, [value] if before is self.default else [*before, value])


class Parser(argparse.ArgumentParser):
    """A parser whose options of several values leave alone what follows and reads as none of theirs.

    `certify --severity 3 5 RUN` is `certify --severity 3 --severity 5 RUN`; argparse would take the run for a severity.
    What is wrong is one line, without the list of all options that argparse writes before it.
    """

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Give every value its own option before anything is parsed, and refuse what is foreign to this command."""
        found, foreign = super().parse_known_args(None if args is None else self._one_by_one(args), namespace)
        if foreign:
            near = difflib.get_close_matches(foreign[0].partition("=")[0], self._option_string_actions, n=1)
            self.error(f"unknown argument {foreign[0]}{f'; did you mean {near[0]}?' if near else ''}")
        return found, foreign

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where to read on, and leave."""
        mark = "" if message.endswith("?") else "."
        self.exit(2, f"{self.prog}: {message}{mark} See `{self.prog} --help`.\n")

    def _one_by_one(self, args: Sequence[str]) -> list[str]:
        several = [action for action in self._actions if isinstance(action, Several)]
        spread, last, values = list[str](), None, 0
        for text in args:
            told = [action for action in several if any(_is_flag(text, flag) for flag in action.option_strings)]
            if told:
                last, values = told[0], 0
            elif last and (values == 0 or _reads(last, text)):
                spread += [last.option_strings[0]] if values else []
                values += 1
            else:
                last = None
            spread.append(text)
        return spread


def _is_flag(text: str, flag: str) -> bool:
    return text == flag or (len(text) > 3 and flag.startswith(text))  # argparse takes the beginning of one, too


def _reads(option: argparse.Action, text: str) -> bool:
    """Whether a text is a value of an option."""
    read: Any = option.type
    try:
        read(text)
    except (ValueError, argparse.ArgumentTypeError):
        return False
    return True
