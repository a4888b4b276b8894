"""Find the fenced code blocks of the documentation, to run them as tests.

The `python` and `sh` blocks of a page run in order, in a temporary folder. A comment on the line above a block changes
this:

    <!-- not run: REASON -->                the block is only parsed (a download, a cluster, hours of training)
    <!-- run smaller: A => B; C => D -->    the block runs with the text A replaced by B, and C by D
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted(ROOT.glob("docs/*.md")),
]

_BLOCK = re.compile(
    r"(?:^ *<!-- (?P<note>(?:not run|run smaller):.*?) -->\n)?"
    r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A code block, with the reason not to run it or the replacements to apply before running it."""

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
        """The code to run, with the replacements applied."""
        code = self.code
        for old, new in self.smaller.items():
            assert old in code, f"{self.where}: the text to replace, {old!r}, is missing"
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
    """Return a Python program that runs the blocks in order; Python blocks share one namespace."""
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
