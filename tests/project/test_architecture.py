"""The import rules between packages, read from the sources; docs/architecture.md explains the layout."""

import ast
import collections
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from import_graph import find_cycle, imported_modules, outside_imports, part_graph, part_of, read_imports
from launching import environment

import smoothcert

ROOT = Path(smoothcert.__file__).parent

# Which part may import which, from top to bottom: a part imports only parts that stand below it.
ALLOWED = {
    "__main__": "cli runtime",
    "cli": "paper report demo training certification checkpoints smoothing data results runtime distributed"
    " plugins philox statistics dataset_names model_names errors __version__",
    "paper": "report training certification checkpoints smoothing data results runtime distributed models errors",
    "report": "training data results runtime statistics dataset_names model_names errors __version__",
    "demo": "__version__",
    "training": "certification checkpoints smoothing data results runtime distributed methods models philox kernels"
    " statistics dataset_names errors",
    "certification": "smoothing data results runtime distributed methods models philox statistics dataset_names errors",
    "checkpoints": "data runtime models model_names errors",
    "smoothing": "runtime models philox kernels statistics errors",
    "data": "runtime philox statistics dataset_names errors",
    "results": "runtime statistics dataset_names errors",
    "runtime": "distributed errors __version__",
    "distributed": "errors",
    "methods": "statistics errors",
    "models": "model_names kernels statistics errors",
    "plugins": "errors",
    "philox": "kernels",
    "kernels": "errors",
    "bounds": "statistics",
    "metrics": "statistics",
    "stopping": "statistics",
    "statistics": "errors",
    "dataset_names": "",
    "model_names": "",
    "errors": "",
}
TORCH_FREE = ("statistics", "results", "report", "demo")
TORCH_FREE_FILES = tuple(f"certification/{name}.py" for name in ("cascade", "recertify", "scheduler"))
JOINING = {"cli/__init__.py", "distributed/ranks.py"}
"""Files that import `distributed.launched`, in functions that a single process does not call."""


@pytest.fixture(scope="module")
def files():
    """Imports of every file but the facade `smoothcert/__init__.py`, which loads public names from everywhere."""
    found = read_imports(ROOT)
    del found["__init__.py"]
    return found


@pytest.fixture(scope="module")
def graph(files):
    return part_graph(files, "smoothcert")


def test_parts_import_what_the_table_allows(graph):
    extra = [
        f"{part} imports {target}, in {', '.join(sorted(set(places)))}"
        for part, targets in graph.items()
        for target, places in targets.items()
        if target not in ALLOWED.get(part, "").split()
    ]
    assert not extra, "imports that are not allowed:\n" + "\n".join(sorted(extra))


def test_the_table_has_no_edge_that_does_not_exist(graph):
    assert set(ALLOWED) == set(graph)
    gone = [f"{part} -> {name}" for part, names in ALLOWED.items() for name in names.split() if name not in graph[part]]
    assert not gone, "take out of ALLOWED: " + ", ".join(gone)


def test_the_table_goes_from_top_to_bottom():
    above = set()
    for part, names in ALLOWED.items():
        above.add(part)
        assert not above & set(names.split()), f"{part} imports a part that stands above it"


def test_no_part_imports_itself_through_others(graph):
    assert find_cycle(graph) == []


def test_no_module_name_is_computed(files):
    """Such an import could not be checked here. A user names the modules that `plugins.py` imports."""
    assert [file for file, names in files.items() if "?" in names] == ["plugins.py"]


def test_nothing_imports_the_command_line(graph):
    assert [part for part, targets in graph.items() if "cli" in targets] == ["__main__"]


def test_methods_know_only_torch_statistics_and_errors(files, graph):
    assert set(graph["methods"]) <= {"statistics", "errors"}
    outside = outside_imports(files, "methods", "smoothcert", sys.stdlib_module_names)
    assert outside == {"torch"}


def test_the_package_is_not_imported_as_a_whole():
    """`import smoothcert` in a function would reach everything through the public names."""
    found = [
        f"{file}:{node.lineno}: {ast.unparse(node)}"
        for file, node in nodes(ast.Import)
        if any(alias.name.split(".")[0] == "smoothcert" for alias in node.names)
    ]
    assert not found, "write `from smoothcert.... import ...`:\n" + "\n".join(found)


def importers(files, *packages):
    """Return the files that import one of the packages or modules, each with the names that it imports."""
    below = tuple(f"{package}." for package in packages)
    found = {file: {n for n in names if n in packages or n.startswith(below)} for file, names in files.items()}
    return {file: names for file, names in found.items() if names}


def torch_free(files):
    return [file for file in files if part_of(file) in TORCH_FREE or file in TORCH_FREE_FILES]


def test_torch_is_not_imported(files):
    found = importers({file: files[file] for file in torch_free(files)}, "torch", "safetensors")
    assert not found


def test_torch_is_not_reached_through_other_modules():
    """All modules that torch-free files import, in functions, too, are imported together."""
    files = read_imports(ROOT, types=False)
    modules = {
        "smoothcert." + file.removesuffix(".py").removesuffix("/__init__").replace("/", "."): file for file in files
    }
    wanted = {module for module, file in modules.items() if file in torch_free(files)}
    wanted |= {name for file in torch_free(files) for name in files[file] if name in modules}
    code = f"""
import importlib, sys
for name in {sorted(wanted)}:
    importlib.import_module(name)
    if "torch" in sys.modules:
        sys.exit(f"{{name}} imports torch")
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_triton_is_imported_only_inside_kernels(files):
    assert {part_of(file) for file in importers(files, "triton")} == {"kernels"}


def test_a_single_process_does_not_import_the_code_for_several():
    found = importers(read_imports(ROOT, types=False), "smoothcert.distributed.launched")
    assert set(found) == JOINING
    found = importers(read_imports(ROOT, lazy=False, types=False), "smoothcert.distributed.launched")
    assert not found


def test_optional_packages_are_imported_where_they_are_used():
    extras = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {re.match(r"[\w-]+", package)[0] for name, group in extras.items() if name != "docs" for package in group}
    names |= {"PIL", "skimage", "imagecorruptions", "pandas", "torch.utils.tensorboard"}
    found = importers(read_imports(ROOT, lazy=False, types=False), *names)
    assert not found


def test_torchvision_is_never_imported(files):
    found = importers(files, "torchvision")
    assert not found


def test_the_page_on_the_architecture_names_these_tests():
    page = (ROOT.parents[1] / "docs/architecture.md").read_text()
    found = set(re.findall(r"`(test_\w+)`", page))
    assert found
    assert found <= globals().keys()


SOURCES = {
    "a/one.py": "import p.b.two",
    "b/two.py": "def f():\n    from p import c",
    "b/other.py": "from p.b.two import f\nfrom . import two\nfrom ..errors import E",
    "c.py": "import importlib\nimportlib.import_module('p.a.one')",
    "errors.py": "import json, torch.nn",
}


def fake(sources):
    return {
        file: imported_modules(ast.parse(text), ".".join(["p", *file.split("/")[:-1]]))
        for file, text in sources.items()
    }


def test_the_checker_sees_lazy_relative_and_computed_imports():
    files = fake(SOURCES)
    graph = part_graph(files, "p")
    assert {part: set(targets) for part, targets in graph.items()} == {
        "a": {"b"},
        "b": {"c", "errors"},
        "c": {"a"},
        "errors": set(),
    }
    assert graph["b"]["c"] == ["b/two.py"]
    assert outside_imports(files, "errors", "p", sys.stdlib_module_names) == {"torch"}
    assert "?" in imported_modules(ast.parse("importlib.import_module(name)"))


def test_the_checker_leaves_out_lazy_imports_and_those_for_types():
    tree = ast.parse("import a\nif TYPE_CHECKING:\n    import b\ndef f():\n    import c")
    assert imported_modules(tree) == {"a", "b", "c"}
    assert imported_modules(tree, types=False) == {"a", "c"}
    assert imported_modules(tree, lazy=False) == {"a", "b"}


def test_the_checker_finds_a_cycle():
    cycle = find_cycle(part_graph(fake(SOURCES), "p"))
    assert cycle[0] == cycle[-1]
    assert set(cycle) == {"a", "b", "c"}
    assert find_cycle(part_graph(fake({**SOURCES, "c.py": ""}), "p")) == []


HASH = "from smoothcert.runtime.environment import source_hash; print(source_hash())"


def test_the_source_hash_covers_the_whole_package(tmp_path):
    """Also files of other packages than the one that computes it."""

    def source_hash():
        variables = {**environment(), "PYTHONPATH": str(tmp_path)}
        return subprocess.run([sys.executable, "-c", HASH], env=variables, capture_output=True, check=True).stdout

    for path in (*ROOT.rglob("*.py"), *ROOT.rglob("*.cu")):
        copy = tmp_path / "smoothcert" / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    found = {source_hash()}
    for count, file in enumerate(
        ("kernels/noise.py", "kernels/resident_stage.cu", "errors.py", "report/page/__init__.py"), 2
    ):
        with (tmp_path / "smoothcert" / file).open("a") as opened:
            opened.write("# one line more\n")
        found.add(source_hash())
        assert len(found) == count, file


def nodes(kind):
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, kind):
                yield path.relative_to(ROOT).as_posix(), node


def test_no_docstring_starts_with_a_question_word():
    """They start with a verb ("Return ...") or a noun ("True if ..."); attributes' docstrings, too."""
    found = [
        f"{file}:{node.lineno}: {node.value.value.splitlines()[0]}"
        for file, node in nodes(ast.Expr)
        if isinstance(node.value, ast.Constant) and re.match(r"(What|Whether|How|Where)\b", str(node.value.value))
    ]
    assert not found, f"{len(found)} docstrings:\n" + "\n".join(found)


def test_no_two_classes_or_types_share_a_name():
    places = collections.defaultdict(list)
    for file, node in nodes((ast.ClassDef, ast.Module)):
        for name in [node.name] if isinstance(node, ast.ClassDef) else type_names(node):
            places[name].append(file)
    found = [f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]
    assert not found, "classes or types of one name:\n" + "\n".join(found)


def type_names(module):
    """Return names such as `Floats` that are assigned at module level; constants have no lowercase letters."""
    assigned = [node for node in module.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    targets = [ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0]) for node in assigned]
    return [name for name in targets if re.fullmatch(r"[A-Z]\w*[a-z]\w*", name)]
