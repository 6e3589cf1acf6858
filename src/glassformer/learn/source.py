"""The learner's file as text: what it defines, what an exercise needs of it, and changes that lose no line.

A stub is only ever appended. Whoever replaces a definition (`--reset`, `keep`) keeps the old file in a backup first.
Imports no torch and runs nothing of the file.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from glassformer.base.errors import DataError
from glassformer.proof.check.file import bound, tree_of
from glassformer.store.files import explained, make_folder, write_bytes

KEPT = 20
"""Backups that are kept."""


@dataclass(frozen=True)
class Source:
    """A Python file, read once."""

    path: Path
    data: bytes

    @property
    def text(self) -> str:
        """Its text."""
        return self.data.decode("utf-8", "replace")

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree. Errors: `DataError` with the line that Python cannot read."""
        return tree_of(self.path, self.data)

    @cached_property
    def imported(self) -> dict[str, ast.stmt]:
        """From each name that an import binds to its statement."""
        nodes = [node for node in self.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        return {(each.asname or each.name).split(".")[0]: node for node in nodes for each in node.names}

    @cached_property
    def names(self) -> set[str]:
        """All names that it binds."""
        return {*self.definitions, *self.imported}

    @cached_property
    def definitions(self) -> dict[str, ast.stmt]:
        """The last statement that binds each name."""
        return {name: node for node in self.tree.body for name, _ in bound(node)}

    @property
    def twice(self) -> dict[str, list[int]]:
        """The functions and classes that are defined more than once, and their lines."""
        own = [node for node in self.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        often = Counter(node.name for node in own)
        return {name: [node.lineno for node in own if node.name == name] for name, times in often.items() if times > 1}

    def needed(self, names: Iterable[str]) -> list[ast.stmt]:
        """Return the definitions of these names and of all that they use, in the order of the file."""
        found: set[str] = set()
        waiting = [name for name in names if name in self.definitions]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                used = {node.id for node in ast.walk(self.definitions[name]) if isinstance(node, ast.Name)}
                waiting += [each for each in used if each in self.definitions]
        nodes = {id(self.definitions[name]): self.definitions[name] for name in found}
        return [node for node in self.tree.body if id(node) in nodes]

    def used(self, name: str) -> list[str]:
        """Return the names from outside that the last definition of `name` reads, apart from Python's own."""
        code = ast.walk(self.definitions[name])
        nodes = [node for node in code if isinstance(node, ast.Name | ast.arg)]
        bound_here = {
            node.arg if isinstance(node, ast.arg) else node.id
            for node in nodes
            if isinstance(node, ast.arg) or isinstance(node.ctx, ast.Store)
        }
        read = dict.fromkeys(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
        return [each for each in read if each not in bound_here and not hasattr(builtins, each)]

    @cached_property
    def beside(self) -> list[Path]:
        """The files of the same folder that it imports, and those that these import."""
        found: dict[Path, None] = {}
        waiting: list[Source] = [self]
        while waiting:
            source = waiting.pop()
            nodes = [*source.imported.values()]
            names = [each.module or "" for each in nodes if isinstance(each, ast.ImportFrom)]
            names += [alias.name for each in nodes if isinstance(each, ast.Import) for alias in each.names]
            paths = [self.path.parent / f"{name.split('.')[0]}.py" for name in dict.fromkeys(names)]
            new = [each for each in paths if each.is_file() and each not in (self.path, *found)]
            found |= dict.fromkeys(new)
            waiting += [read_source(each) for each in new]
        return [*found]

    def digest(self, names: Collection[str]) -> str:
        """Return a hash of all that the outcome for these names depends on: equal hash, equal outcome."""
        loose = [node for node in self.tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
        text = "\n".join(map(ast.unparse, [*loose, *self.needed(names)]))
        return hashlib.sha256(b"".join([text.encode(), *(each.read_bytes() for each in self.beside)])).hexdigest()

    def borrowed(self, names: Collection[str], not_with: Collection[str]) -> str | None:
        """Return the call with which the code for these names lets another library do the work; None without one."""
        origin = {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in (each for part in self.needed(names) for each in ast.walk(part)):
            if isinstance(node, ast.Attribute) and node.attr in not_with:
                return ast.unparse(node)
            if isinstance(node, ast.Name) and node.id in origin:
                module, name = origin[node.id]
                if module.split(".")[0] == "glassformer" or (module.startswith("torch") and name in not_with):
                    return f"{module}.{name}"
        return None


def source_of(text: str) -> Source:
    """Return a text as if it were a file."""
    return Source(Path("text.py"), text.encode("utf-8"))


def read_source(path: Path) -> Source:
    """Read the learner's file; one that is not there counts as empty. Errors: `DataError` for a folder."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; the learner's file must be a Python file.")
    return Source(path, path.read_bytes() if path.is_file() else b"")


def append(path: Path, backups: Path, text: str) -> None:
    """Append `text`, in one write, below what is there; the file as it was goes into `backups` first.

    Not by renaming: what an editor saves meanwhile stays in the file. Errors: `CheckpointError` where it cannot be
    written.
    """
    old = read_source(path).data
    back_up(path, backups)
    if old and not old.endswith(b"\n"):
        text = f"\n{text}"
    if b"\r\n" in old:
        text = text.replace("\n", "\r\n")
    with explained(path, len(text)):
        make_folder(path.parent)
    with explained(path, len(text)), path.open("ab") as file:
        file.write(text.encode("utf-8"))


def replace(source: Source, backups: Path, name: str, text: str) -> None:
    """Put `text` in the place of the last definition of `name`, or at the end; the old file goes into `backups`.

    Errors: `DataError` if the file changed since it was read.
    """
    node = source.definitions.get(name)
    if node is None:
        append(source.path, backups, f"\n\n{text}")
        return
    lines = source.text.splitlines(keepends=True)
    end = "\r\n" if b"\r\n" in source.data else "\n"
    new = text.rstrip("\n").replace("\n", end) + end
    whole = "".join([*lines[: begins(node) - 1], new, *lines[node.end_lineno :]])
    back_up(source.path, backups)
    if read_source(source.path).data != source.data:
        raise DataError(f"{source.path} was saved meanwhile, so nothing was changed. Try again.")
    write_bytes(source.path, whole.encode("utf-8"))


def definition(text: str, name: str) -> str:
    """Return the text of one function or class in `text`, or "" if it is not there."""
    node = source_of(text).definitions.get(name)
    return "" if node is None else "\n".join(text.splitlines()[begins(node) - 1 : node.end_lineno]) + "\n"


def begins(node: ast.stmt) -> int:
    """Return the line in which a statement begins, with its decorators."""
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])


def back_up(path: Path, backups: Path) -> None:
    """Keep a copy of a file as it is now, if it is there; the oldest copies beyond a number of them go."""
    data = read_source(path).data
    kept = sorted(backups.glob(f"{path.stem}-*{path.suffix}"))
    if not data or (kept and kept[-1].read_bytes() == data):
        return
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    write_bytes(backups / f"{path.stem}-{stamp}{path.suffix}", data)
    for each in kept[: max(len(kept) + 1 - KEPT, 0)]:
        each.unlink(missing_ok=True)
