"""Execute a notebook from top to bottom and store its outputs, without Jupyter.

python scripts/run_notebook.py NOTEBOOK [--out FILE]

Each cell shows what it prints, the value of its last line, and its figures, as in Jupyter. Paths are relative
to the current folder.
"""

import argparse
import ast
import base64
import contextlib
import io
import json
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt


def run_notebook(path):
    """Return a notebook with the outputs of its cells."""
    notebook = json.loads(Path(path).read_text(encoding="utf-8"))
    names = {"__name__": "__main__"}
    code_cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code_cells, start=1):
        cell["outputs"] = _run_cell("".join(cell["source"]), names, Path(path).name, number)
        cell["execution_count"] = number
    return notebook


def _run_cell(source, names, notebook, number):
    where = f"{notebook}, cell {number}"
    tree = ast.parse(source, where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, where, "exec"), names)
        value = eval(compile(ast.Expression(last.value), where, "eval"), names) if last else None
    outputs = []
    if lines := printed.getvalue().splitlines(keepends=True):
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        outputs.append({"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": number})
    for figure in map(plt.figure, plt.get_fignums()):
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=80, metadata={"Software": None})
        shown = {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": ["<Figure>"]}
        outputs.append({"output_type": "display_data", "data": shown, "metadata": {}})
    plt.close("all")
    return outputs


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--out", type=Path, help="notebook to write (default: overwrite NOTEBOOK)")
    args = parser.parse_args()
    text = json.dumps(run_notebook(args.notebook), indent=1, ensure_ascii=False) + "\n"
    (args.out or args.notebook).write_text(text, encoding="utf-8")
