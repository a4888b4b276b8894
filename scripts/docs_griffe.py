"""Griffe extensions for the Python API page."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^>>> .*\n?)(?:^(?!\s*$).*\n?)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Enclose doctests in code fences: Markdown would render the prompt `>>>` as a quotation."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring:
            fenced = _EXAMPLE.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", obj.docstring.value)
            obj.docstring.value = fenced


class PublicPaths(griffe.Extension):
    """Document modules of `smoothcert.statistics` under their public paths, such as `smoothcert.bounds`."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Replace the modules at the public paths by aliases."""
        for name in ("bounds", "metrics", "stopping"):
            pkg.set_member(name, griffe.Alias(name, pkg[f"statistics.{name}"], parent=pkg))
