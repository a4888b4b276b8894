"""The command-line reference of the site, generated from the parser."""

import argparse
import re

from smoothcert.cli import build_parser

_INTRODUCTION = """# Command-line reference

Generated from the parser: the same text as `smoothcert COMMAND --help`. [Commands](commands.md) introduces them.
"""


def command_reference():
    """Return the page as Markdown."""
    parser = build_parser()
    return "\n".join([_INTRODUCTION, *_commands(parser, level=2)])


def _commands(parser, level):
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        for command in action.choices.values():
            yield from _command(command, level)


def _command(parser, level):
    yield f"{'#' * level} {parser.prog}\n"
    if parser.description:
        yield _prose(parser.description) + "\n"
    usage = re.sub(r"\s+", " ", parser.format_usage().removeprefix("usage: ")).strip()
    yield f"```text\n{usage}\n```\n"
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if _is_documented(action)]
        if actions:
            heading = group.title or "options"
            yield f"| {heading} | |\n| --- | --- |"
            yield from (_row(parser, action) for action in actions)
            yield ""
    yield from _commands(parser, level + 1)


def _is_documented(action):
    hidden = isinstance(action, argparse._SubParsersAction | argparse._HelpAction)
    return not hidden and action.help != argparse.SUPPRESS


def _row(parser, action):
    formatter = parser._get_formatter()
    shown = formatter._format_action_invocation(action)
    text = formatter._expand_help(action) if action.help else ""
    return f"| `{_cell(shown)}` | {_prose(_cell(text))} |"


def _cell(text):
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def _prose(text):
    """Escape characters that Markdown would read as markup, except inside code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<\[\]$])", r"\\\1", part) for part in parts)
