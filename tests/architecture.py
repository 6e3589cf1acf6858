"""The rules of the house as functions from source text to complaints; nothing is imported, `ast` reads it all.

`test_architecture.py` runs them over every file, and over planted offences to show that each rule can fail.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "glassformer"
MODULES = sorted(
    path.relative_to(SOURCE).as_posix()
    for path in SOURCE.rglob("*.py")
    if path.parent.name != "solutions"  # what a learner may end with: data of the course
)

FLOORS = {
    "__version__": -1,  # a constant, for everybody
    "base": 0,
    "nn": 1,
    "data": 2,
    "decode": 3,
    "store": 3,
    "train": 4,
    "fast": 5,
    "lens": 6,
    "proof": 6,
    "study": 6,
    "serve": 6,
    "control": 6,
    "learn": 7,
    "cli": 8,
    "__init__": 9,  # the lazy index of public names reaches everywhere, and nobody may lean on it
    "__main__": 9,
}


Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


def floor_of(module: str) -> tuple[str, int | None]:
    """Folder (or file) below `glassformer` in which a module path (`a/b.py`) or dotted name (`a.b`) lies, its floor."""
    folder = re.split(r"[./]", module)[0] or "__init__"
    return folder, FLOORS.get(folder)


def imports(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of all that a module imports, wherever in the file, relative names made absolute."""
    package = ["glassformer", *module.split("/")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            # `from glassformer import data` names a module, `from glassformer.data import x` may or may not: the
            # first two words decide the folder in both.
            yield from ((node.lineno, f"{name}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and called(node, {}).split(".")[-1] in ("import_module", "__import__"):
            texts = (each.value for each in node.args if isinstance(each, ast.Constant))
            yield from ((node.lineno, text) for text in texts if isinstance(text, str))


def import_graph(texts: dict[str, str]) -> dict[str, set[str]]:
    """Of module paths and their source: which of them each imports, wherever in the file, also for types alone."""
    names = {_dotted(module): module for module in texts}
    graph: dict[str, set[str]] = {}
    for module, text in texts.items():
        found = {
            names.get(name) or names.get(name.rpartition(".")[0])
            for _, name in imports(module, ast.parse(text))
            if not name.endswith(".__version__")  # a constant, for everybody
        }
        graph[module] = {each for each in found if each is not None and each != module}
    return graph


def _dotted(module: str) -> str:
    words = ["glassformer", *module.removesuffix(".py").split("/")]
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The largest sets of modules in which each leads back to itself through the others."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        waiting = [*graph[start]]
        while waiting:
            module = waiting.pop()
            if module not in seen:
                seen.add(module)
                waiting += graph[module]
        reached[start] = seen
    rings = {frozenset(other for other in seen if start in reached[other]) for start, seen in reached.items()}
    return [{*ring} for ring in rings if ring]


def upward_imports(module: str, text: str) -> list[str]:
    """A module imports only its own folder and lower floors."""
    folder, floor = floor_of(module.removesuffix(".py"))
    if floor is None:
        return [f"the folder {folder!r} has no floor: give it one in FLOORS"]
    complaints: list[str] = []
    for line, name in imports(module, ast.parse(text)):
        if name.split(".")[0] != "glassformer":
            continue
        other, other_floor = floor_of(name.removeprefix("glassformer").removeprefix("."))
        if other != folder and (other_floor is None or other_floor >= floor):
            index = other == "__init__" or other_floor is None
            shown = "the public index; only __version__ may be taken from it" if index else f"floor {other_floor}"
            complaints.append(f"line {line}: {folder} (floor {floor}) imports {name} ({shown})")
    return complaints


def called(node: ast.Call, names: dict[str, str]) -> str:
    """The dotted name of what is called, import aliases undone: `t.load` after `import torch as t` is torch.load."""
    parts: list[str] = []
    function = node.func
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    if not isinstance(function, ast.Name):
        return ".".join(["?", *reversed(parts)])
    return ".".join([names.get(function.id, function.id), *reversed(parts)])


BANNED_CALLS = {"torch.load", "torch.save", "eval", "exec", "yaml.load", "builtins.eval", "builtins.exec"}
RUNS_CODE = {"learn/outputs.py", "proof/check/examine.py"}
"""Modules whose purpose is to run code, in a process of its own: the cells of chapters, a learner's file."""
BANNED_MODULES = {"pickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def banned_calls(module: str, text: str) -> list[str]:
    """No pickle under any name, and nothing that runs what a file says."""
    tree = ast.parse(text)
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    imported = [(line, name) for line, name in imports(module, tree) if name.split(".")[0] in BANNED_MODULES]
    found = [f"line {line}: imports {name}" for line, name in imported]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if (name := called(node, names)) in BANNED_CALLS - ({"eval", "exec"} if module in RUNS_CODE else set()):
            found.append(f"line {node.lineno}: calls {name}")
        for keyword in node.keywords:
            refuses = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            if keyword.arg in ("allow_pickle", "trust_remote_code") and not refuses:
                found.append(f"line {node.lineno}: passes {keyword.arg}")
    return found


TASK_NAMES = {"LABEL", "LABELLED", "TEXT", "TRAJECTORIES", "ACTIONS", "PAIRS", "NO_ANSWERS", "EQUAL_LENGTHS", "FILES"}
"""The constants that name a task or a layout."""
TASK_WORDS = {
    *("pairs", "labelled", "text", "trajectories", "copy", "reverse", "sort"),
    *("encoder-decoder", "encoder", "label", "decoder", "masked", "actions"),
}


TASK_CLASSES = {"Pairs", "Labels", "Tags", "Regression", "Text", "Trajectories"}


def compared_tasks(module: str, text: str) -> list[str]:
    """Only tasks and data compare the name of a task or of a layout, or look something up by it; others ask the task.

    So it is with the class of a task: whoever needs `isinstance`, or a table by class, lacks something in `Task`.

    A run may be compared with another run, so two values that both come from settings may meet.
    """
    if module.startswith(("data/", "train/tasks/")):
        return []
    complaints: list[str] = []

    def names(node: ast.expr) -> bool:
        each = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
        return any(
            (isinstance(one, ast.Name) and one.id in TASK_NAMES)
            or (isinstance(one, ast.Constant) and one.value in TASK_WORDS)
            for one in each
        )

    def settings(node: ast.expr) -> bool:
        named = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        return named in ("task", "layout")

    tree = ast.parse(text)
    classes = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("glassformer.train.tasks")
        for alias in node.names
        if alias.name in TASK_CLASSES
    }
    for node in ast.walk(tree):
        chosen = (
            node.args[1:] if isinstance(node, ast.Call) and called(node, {}) in ("isinstance", "issubclass") else []
        )
        chosen = [*filter(None, node.keys)] if isinstance(node, ast.Dict) else chosen
        if any(isinstance(each, ast.Name) and each.id in classes for one in chosen for each in ast.walk(one)):
            complaints.append(f"line {node.lineno}: asks for the class of a task")
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(map(settings, sides)) and any(map(names, sides)):
                complaints.append(f"line {node.lineno}: compares a task's or a layout's name")
        requested = node.slice if isinstance(node, ast.Subscript) else None
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
        ):
            requested = node.args[0]
        table = node.value if isinstance(node, ast.Subscript) else node.func if isinstance(node, ast.Call) else None
        by_name = isinstance(requested, ast.Attribute) and requested.attr in ("task", "layout")
        if by_name and not (isinstance(table, ast.Name) and table.id in ("LAYOUTS", "ROTARY_LAYOUTS", "TASKS")):
            complaints.append(f"line {node.lineno}: looks up by a task's or a layout's name")
    return complaints


TERMINAL = {"sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"}


def loud_lines(module: str, text: str) -> list[str]:
    """Only the command line, the progress report and what a notebook calls write to the terminal."""
    if module.startswith("cli/") or module in ("train/report.py", "learn/__init__.py"):
        return []
    found: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and called(node, {}) in ("print", "builtins.print", "pprint.pprint"):
            found.append(f"line {node.lineno}: prints")
        if isinstance(node, ast.Attribute) and ast.unparse(node) in TERMINAL:
            found.append(f"line {node.lineno}: uses {ast.unparse(node)}")
    return found


def public(nodes: list[ast.stmt], within: str = "") -> Iterator[tuple[str, Definition]]:
    """(name, node) of the public functions and classes of a module, and of the public methods of those classes."""
    for node in nodes:
        if isinstance(node, ast.If | ast.Try):
            yield from public(node.body + node.orelse, within)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield f"{within}{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, f"{within}{node.name}.")


def decorators(node: Definition) -> set[str]:
    """The last words of its decorators: `override`, `overload`, `setter`."""
    heads = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    return {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "?") for each in heads}


def documented(classes: dict[str, ast.ClassDef], name: str, method: str) -> bool:
    """Whether a base of the class `name` explains `method`; such a text is inherited."""
    bases = [base.id for base in classes[name].bases if isinstance(base, ast.Name) and base.id in classes]
    for base in bases:
        own = [node for node in classes[base].body if isinstance(node, Function) and node.name == method]
        if any(map(ast.get_docstring, own)) or documented(classes, base, method):
            return True
    return False


@cache
def all_classes() -> dict[str, ast.ClassDef]:
    """Every class of the package by name."""
    trees = [ast.parse((SOURCE / module).read_text("utf-8")) for module in MODULES]
    return {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}


def undocumented(module: str, text: str) -> list[str]:
    """A module, and every public class, function and method in it, says what it is; a base class, or a law, may."""
    tree = ast.parse(text)
    classes = all_classes() | {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    found = [] if ast.get_docstring(tree) else ["the module has no docstring"]
    for name, node in public(tree.body):
        owner, _, method = name.rpartition(".")
        inherited = owner in classes and documented(classes, owner, method)
        if not ast.get_docstring(node) and not inherited and not decorators(node) & {"overload", "setter", "law"}:
            found.append(f"line {node.lineno}: {name} has no docstring")
    return found


def unannotated(module: str, text: str) -> list[str]:
    """Every parameter and result of a public function has a type."""
    found: list[str] = []
    for name, node in public(ast.parse(text).body):
        if isinstance(node, ast.ClassDef):
            constructor = [each for each in node.body if isinstance(each, Function) and each.name == "__init__"]
            found += [gap for each in constructor for gap in gaps(f"{name}.__init__", each, method=True)]
        else:
            found += gaps(name, node, method="." in name and "staticmethod" not in decorators(node))
    return found


def gaps(name: str, node: Function, method: bool) -> list[str]:
    """The parameters of one function (but `self` and `cls`) that have no annotation, and its result likewise."""
    signature = node.args
    ordered = [*signature.posonlyargs, *signature.args][1 if method else 0 :]
    every = [*ordered, *signature.kwonlyargs, *filter(None, (signature.vararg, signature.kwarg))]
    found = [f"line {node.lineno}: {name}: {each.arg} has no type" for each in every if each.annotation is None]
    return found if node.returns else [*found, f"line {node.lineno}: {name}: the result has no type"]


def unfinished(module: str, text: str) -> list[str]:
    """Work left for later belongs into an issue."""
    words = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    return [f"line {number}: {line.strip()}" for number, line in enumerate(text.splitlines(), 1) if words.search(line)]


def too_long(module: str, text: str) -> list[str]:
    """One idea a file, on 600 lines at most."""
    lines = len(text.splitlines())
    return [f"{lines} lines; split it by idea"] if lines > 600 else []


def function_lengths(module: str, text: str) -> list[tuple[int, str]]:
    """(lines, where) of every function and method, docstring included."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, Function)]
    return [(node.end_lineno - node.lineno + 1, f"{module}:{node.lineno} {node.name}") for node in functions]


RULES = (upward_imports, banned_calls, compared_tasks, loud_lines, undocumented, unannotated, unfinished, too_long)
