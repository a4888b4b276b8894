"""The fenced code blocks of the documentation, and how each is to be tested.

A block in `python` or `sh` runs as it stands, in a folder of its page's own, after the blocks before it. A comment on
the line above its fence says otherwise:

    <!-- not run: REASON -->          it is only parsed: a download, a cluster, hours
    <!-- run smaller: A => B; C => D -->    it runs with the text A replaced by B, and C by D
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "benchmarks/README.md", *sorted(ROOT.glob("docs/*.md"))]

_BLOCK = re.compile(
    r"(?:^ *<!-- (?P<note>(?:not run|run smaller):.*?) -->\n)?"
    r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One block: where it stands, its language and text, why it is not run, and what is replaced when it is."""

    page: str
    line: int
    language: str
    code: str
    reason: str = ""
    smaller: dict[str, str] = field(default_factory=dict)

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def to_run(self) -> str:
        """The text that is run; every replacement must have something to replace."""
        code = self.code
        for old, new in self.smaller.items():
            assert old in code, f"{self.where}: {old!r}, which is to be replaced, is not there"
            code = code.replace(old, new)
        return code


def blocks_of(text: str, page: str) -> list[Block]:
    """Return the blocks of a page's text."""
    found = []
    for match in _BLOCK.finditer(text):
        kind, _, rest = (match["note"] or "").partition(":")
        pairs = [pair.split(" => ") for pair in rest.split(";")] if kind == "run smaller" else []
        code = re.sub(f"^{match['indent']}", "", match["code"], flags=re.MULTILINE)
        found.append(
            Block(
                page,
                text.count("\n", 0, match.start("language")) + 1,
                {"bash": "sh"}.get(match["language"].strip(), match["language"].strip()),
                code,
                rest.strip() if kind == "not run" else "",
                {old.strip(): new.strip() for old, new in pairs},
            )
        )
    return found


def blocks(path: Path) -> list[Block]:
    """Return the blocks of a file."""
    return blocks_of(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))


def program(page_blocks: list[Block]) -> str:
    """Return a Python program that runs a page's blocks in turn: those in Python share their names."""
    lines = ["import subprocess, sys", "names = {'__name__': '__main__'}"]
    for block in page_blocks:
        if block.reason or block.language not in ("python", "sh"):
            continue
        where, code = json.dumps(block.where), json.dumps(block.to_run)
        lines.append(f"print('running', {where}, flush=True)")
        if block.language == "python":
            lines.append(f"exec(compile({code}, {where}, 'exec'), names)")
        else:
            lines.append(f"subprocess.run(['bash', '-euo', 'pipefail', '-c', {code}], check=True)")
    return "\n".join(lines) + "\n"
