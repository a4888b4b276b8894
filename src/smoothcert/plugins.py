"""Plugins: Python files and installed packages that register models, methods and datasets.

A plugin is a module that calls `smoothcert.register_model`, `register_method` or `register_dataset` when it is
imported. Files are passed to a command as `--plugin FILE`. A package declares its module as an entry point:

    [project.entry-points."smoothcert.plugins"]
    mine = "my_package.smoothcert_plugin"
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterable, Sequence
from importlib.metadata import entry_points
from itertools import pairwise
from pathlib import Path

from smoothcert.errors import Notice, SmoothcertError, UsageError, first_line, quote

FLAG = "--plugin"


def plugin_files(arguments: Sequence[str]) -> list[str]:
    """Return the plugin files in a command's arguments, before parsing: the plugins may add flags to the parser.

    >>> plugin_files(["train", "--plugin", "a.py", "--method", "mine", "--plugin=b.py"])
    ['a.py', 'b.py']
    """
    files = []
    for argument, following in pairwise([*arguments, ""]):
        if argument == FLAG:
            files.append(following)
        elif argument.startswith(f"{FLAG}="):
            files.append(argument.partition("=")[2])
    return [file for file in files if file]


def load_plugins(files: Iterable[str]) -> None:
    """Import plugin files and the plugins of installed packages.

    If a package's plugin raises an error, it is skipped with a notice, so that commands that do not need it still work.
    """
    for entry in entry_points(group="smoothcert.plugins"):
        try:
            entry.load()
        except Exception as error:  # a user's code may raise anything
            text = f"The plugin {entry.name} ({entry.value}) is skipped: {_reason(error)}."
            warnings.warn(text, Notice, stacklevel=2)
    for file in files:
        _load_file(Path(file))


def _load_file(file: Path) -> None:
    """Import a file as a top-level module; like a script, it can import modules in its folder.

    The folder is added to `sys.path`. Child processes inherit this path, so they find the module by its name.
    """
    path = file.expanduser().resolve()
    if not path.is_file() or path.suffix != ".py":
        raise UsageError(f"Expected `{FLAG}` to name a Python file, but {file} is not one.")
    name = path.stem
    if not name.isidentifier():
        raise UsageError(
            f"Expected a plugin's file name without `.py` to be a Python identifier, but got {quote(name)}; rename it."
        )
    folder = str(path.parent)
    added = folder not in sys.path
    if added:
        sys.path.insert(0, folder)
    try:
        _import(name, path)
    except UsageError:
        if added:  # files in this folder may hide other modules
            sys.path.remove(folder)
        raise


def _import(name: str, path: Path) -> None:
    try:
        module = importlib.import_module(name)
    except SmoothcertError as error:
        raise UsageError(f"The plugin {path} failed: {first_line(error)}.") from error
    except Exception as error:
        raise UsageError(f"The plugin {path} cannot be imported: {_reason(error)}.") from error
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != path:
        raise UsageError(f"The plugin {path} has the name of another module, {found or name}; rename it.")


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}".rstrip(".: ")
