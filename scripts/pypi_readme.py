"""Hatchling metadata hook: the README for PyPI, where relative links and pictures would be broken.

Links become addresses of the released version in the source repository, which `project.urls` of pyproject.toml names.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?![a-z]+:|#)(?P<path>[^)\s]+)\)")


def absolute_links(text: str, source: str, version: str) -> str:
    """Return Markdown whose links to files of the repository are absolute.

    >>> absolute_links("![A curve.](docs/a.svg) [FAQ](docs/faq.md#gpu) [top](#top)", "https://x.org/y", "1.0")
    '![A curve.](https://x.org/y/raw/v1.0/docs/a.svg) [FAQ](https://x.org/y/blob/v1.0/docs/faq.md#gpu) [top](#top)'
    """

    def absolute(link: re.Match[str]) -> str:
        view = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['text']}]({source}/{view}/v{version}/{link['path']})"

    return _LINK.sub(absolute, text)


class PypiReadme(MetadataHookInterface):
    """Sets the field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README with absolute links."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source, version = metadata["urls"]["Source"], metadata["version"]
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute_links(text, source, version)}
