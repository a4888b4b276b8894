"""Show the examples in docstrings as code: Griffe hands them on as text, where `>>>` would be a quotation."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^>>> .*\n?)(?:^(?!\s*$).*\n?)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Put every paragraph that begins with a prompt between fences."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change a docstring when its object has been read."""
        if obj.docstring:
            fenced = _EXAMPLE.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", obj.docstring.value)
            obj.docstring.value = fenced
