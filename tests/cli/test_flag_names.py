"""Errors name the argument in Python and the flag on the command line."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import smoothcert
from smoothcert.cli import build_parser, main
from smoothcert.cli.parser import Parser, name_flags
from smoothcert.errors import UsageError
from smoothcert.methods import create_method

SOURCES = Path(smoothcert.__file__).parent


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of all commands and of their subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from commands(command)
            return
    yield parser


COMMANDS = {command.prog: command for command in commands(build_parser())}


@pytest.mark.parametrize("prog", COMMANDS)
def test_every_option_is_named_by_its_flag(prog):
    options = [action for action in COMMANDS[prog]._actions if action.option_strings]
    assert len({action.dest for action in options}) == len(options), "one flag per argument"
    for action in options:
        flag = action.option_strings[0] if action.dest != "help" else "-h"
        assert name_flags(f"Expected `{action.dest}` to be > 0.", COMMANDS[prog]) == f"Expected `{flag}` to be > 0."


def test_other_names_stay_as_they_are():
    parser = Parser()
    parser.add_argument("file")
    parser.add_argument("--form")
    for text in ("`file`", "form", "'form'", "`smoothcert list models`", "`forms`", "`form and more`", "`--form x`"):
        assert name_flags(text, parser) == text
    assert name_flags("`form='pinned'`, `form=\"plain\"`, `form=3`", parser) == (
        "`--form pinned`, `--form plain`, `--form 3`"
    )


def test_library_errors_name_arguments():
    """Only the command line knows flags: no other module has one in backticks in a message."""
    found = [
        f"{path.relative_to(SOURCES)}: {text}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path.relative_to(SOURCES).parts[0] != "cli"
        for text in messages(path)
        if "`--" in text
    ]
    assert not found


def messages(path: Path) -> Iterator[str]:
    """Yield the texts of a module that are not docstrings."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, documented)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in docstrings:
            yield node.value


def test_one_mistake_in_python_and_on_the_command_line(capsys):
    with pytest.raises(UsageError, match="^Expected `num_noises` to be at least 1, but got 0.$"):
        create_method("consistency", 0.25, {"num_noises": 0})
    assert main(["train", "--method", "consistency", "--num-noises", "0"]) == 2
    assert capsys.readouterr().err == "smoothcert: Expected `--num-noises` to be at least 1, but got 0.\n"


def test_an_option_of_another_method_is_named_by_its_flag(capsys):
    with pytest.raises(UsageError, match="^Method stability has no option `num_noises`. Its options: `weight`.$"):
        create_method("stability", 0.25, {"num_noises": 2})
    assert main(["train", "--method", "stability", "--num-noises", "2"]) == 2
    expected = "smoothcert: Method stability has no option `--num-noises`. Its options: `--weight`.\n"
    assert capsys.readouterr().err == expected
    assert main(["train", "--method", "smoothmix", "--attack-radius", "2"]) == 2
    assert "has no option `--attack-radius`; did you mean `--attack-steps`? Its" in capsys.readouterr().err


def test_short_flag_of_the_learning_rate(capsys):
    assert main(["train", "--lr", "-1"]) == 2
    assert "`--learning-rate` to be > 0, but got -1.0" in capsys.readouterr().err
