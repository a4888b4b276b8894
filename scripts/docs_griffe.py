"""Griffe extensions for the Python API page."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^(?P<indent> *)>>> .*\n?)(?:^(?!\s*$).*\n?)*", re.MULTILINE)


def _fenced(match: re.Match[str]) -> str:
    return f"{match['indent']}```pycon\n{match[0].rstrip()}\n{match['indent']}```\n"


class Doctests(griffe.Extension):
    """Enclose doctests in code fences: Markdown would render the prompt `>>>` as a quotation."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(_fenced, obj.docstring.value)


class PublicPaths(griffe.Extension):
    """Document modules of `smoothcert.statistics` under their public paths, such as `smoothcert.bounds`."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Replace the modules at the public paths by aliases."""
        for name in ("bounds", "metrics", "stopping"):
            pkg.set_member(name, griffe.Alias(name, pkg[f"statistics.{name}"], parent=pkg))
