"""Read from the sources which part of a package imports which, without importing anything."""

import ast
from graphlib import CycleError, TopologicalSorter


def imported_modules(tree, module="", *, lazy=True, types=True):
    """Return the names of all modules that a parsed file imports: at its top, in functions, for types, by importlib.

    `from a import b` gives both `a` and `a.b`, since `b` may be a module. `module` is the file's own package, against
    which relative imports are resolved. A computed name gives "?". Without `lazy`, imports in functions are left out,
    and without `types` those below `if TYPE_CHECKING:`.
    """
    names = set()
    for node in _nodes(tree, lazy=lazy, types=types):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: len(module.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            names |= {source, *(f"{source}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            name = node.args[0]
            names.add(name.value if isinstance(name, ast.Constant) else "?")
    return names


def _nodes(tree, *, lazy, types):
    yield tree
    for child in ast.iter_child_nodes(tree):
        function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        for_types = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        if (lazy or not function) and (types or not for_types):
            yield from _nodes(child, lazy=lazy, types=types)


def read_imports(root, **kinds):
    """Return {file relative to `root`: names of the modules it imports} for all Python files of a package."""
    files = {}
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        module = ".".join([root.name, *name.parts[:-1]])
        files[name.as_posix()] = imported_modules(ast.parse(path.read_text(encoding="utf-8")), module, **kinds)
    return files


def part_of(file):
    """Return the part of the package that a file belongs to: its subpackage, or a module at the top."""
    return file.split("/")[0].removesuffix(".py")


def part_graph(files, package):
    """Return {part: {part it imports: files that do}}; a name at the top that is no part stands for itself."""
    graph = {part_of(file): {} for file in files}
    for file, names in files.items():
        for name in names:
            parent, _, rest = name.partition(".")
            target = rest.split(".")[0]
            if parent == package and target and target != part_of(file):
                graph[part_of(file)].setdefault(target, []).append(file)
    return graph


def find_cycle(graph):
    """Return the parts along one cycle of a graph, the first of them repeated at the end, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def outside_imports(files, part, package, standard):
    """Return the top-level modules that a part imports from outside the package and the standard library."""
    names = {name.split(".")[0] for file, found in files.items() if part_of(file) == part for name in found}
    return names - {package} - set(standard)
