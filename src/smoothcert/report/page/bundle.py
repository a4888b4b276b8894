"""Join the report page's ES modules into one script, since a page that opens from disk cannot import files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path

_IMPORT = re.compile(r'^import (?:\{(?P<names>[^}]*)\} from )?"\./(?P<file>[\w-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|function) (?P<name>\w+))", re.MULTILINE)


def bundle(folder: Path) -> str:
    """Return all modules of a folder as one script: each becomes a function that returns its exports.

    Dependencies come first. Modules may import names from other modules of the folder, without renaming, and export
    constants and functions.
    """
    sources = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.js"))}
    needs = {name: [found["file"] for found in _IMPORT.finditer(source)] for name, source in sources.items()}
    order = TopologicalSorter(needs).static_order()
    return "const modules = {};\n" + "".join(_as_function(name, sources) for name in order)


def _as_function(name: str, sources: Mapping[str, str]) -> str:
    source = sources[name]
    exports = ", ".join(found["name"] for found in _EXPORT.finditer(source))
    body = _IMPORT.sub(lambda found: _require(found) if found["names"] else "", source)
    body = _EXPORT.sub("", body)
    return f'modules["{name}"] = (() => {{\n{body}return {{ {exports} }};\n}})();\n'


def _require(found: re.Match[str]) -> str:
    return f'const {{{found["names"]}}} = modules["{found["file"]}"];\n'
