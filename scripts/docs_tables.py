"""Generate the tables of options in docs/methods.md from the dataclasses of the methods.

python scripts/docs_tables.py
"""

import dataclasses
import re
from pathlib import Path

from smoothcert.methods import METHODS
from smoothcert.training.config import TrainConfig
from smoothcert.training.settings import GROUPS

PAGE = Path(__file__).parent.parent / "docs/methods.md"
PART = re.compile(r"(<!-- options: ([\w-]+) -->\n).*?(<!-- end of options -->)", re.DOTALL)


def method_table(method):
    """Return the table of a method's options."""
    rows = [field for field in dataclasses.fields(method) if field.name != "sigma"]
    if not rows:
        return "This method has no options.\n"
    lines = ["| option | default | values | meaning |", "| --- | --- | --- | --- |"]
    lines += [
        f"| `{field.name}` | {_default(field.default)} | {_values(field)} | {field.metadata['help']} |"
        for field in rows
    ]
    return "\n".join(lines) + "\n"


def _default(value):
    return "-" if value in (None, "") else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _values(field):
    kind = int if field.default is None else type(field.default)
    if kind is bool:
        return "`true`, `false`"
    must = field.metadata.get("must", "").removeprefix("be ").replace("at least", ">=")
    if must.startswith("one of "):
        return ", ".join(f"`{name}`" for name in must.removeprefix("one of ").split(", "))
    return " ".join(filter(None, ({int: "integer", float: "number", str: "text"}[kind], must)))


def render(text):
    """Return the page with updated tables."""
    tables = {"run": run_table()} | {name: method_table(method) for name, method in METHODS.items()}
    return PART.sub(lambda match: f"{match[1]}\n{tables[match[2]]}\n{match[3]}", text)


def run_table():
    """Return the table of the options that all methods share."""
    fields = {field.name: field for field in dataclasses.fields(TrainConfig)}
    fields = [fields[name] for names in GROUPS.values() for name in names if name != "method"]
    lines = ["| field | default | meaning |", "| --- | --- | --- |"]
    lines += [f"| `{field.name}` | {_default(field.default)} | {field.metadata['help']} |" for field in fields]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
