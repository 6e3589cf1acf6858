"""The chapters and documents read no name that is nowhere: found without running them, which slow tests do."""

from __future__ import annotations

import ast
import random
import re
from contextlib import ExitStack
from functools import cache
from inspect import isclass, ismodule
from pathlib import Path
from pkgutil import resolve_name

import pytest
import torch

from architecture import MODULES, SOURCE, Definition
from course.chapters import CHAPTERS, cells_of
from documents import INLINE, TEXTS, blocks

plt = pytest.importorskip("matplotlib.pyplot")

PROGRAMS = {path.stem: [cell.text for cell in cells_of(path.read_text("utf-8")) if cell.is_code] for path in CHAPTERS}
PROGRAMS |= {name: programs for name, text in TEXTS.items() if (programs := blocks(text, "python"))}
TORCHS = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer)
OTHERS = (plt.Axes, plt.Figure, random.Random, ExitStack, Path, type, str, list, dict)


def unknown_names(program: str) -> list[str]:
    """What a program reads of a module or class that has it not, and attributes that no class has and nobody assigns.

    Of a value whose class only a run would show, the attribute's name alone is looked at.
    """
    tree = ast.parse(program)
    nodes = [*ast.walk(tree)]
    known = attributes_of_ours() | attributes(tree) | {name for each in (*TORCHS, *OTHERS) for name in dir(each)}
    scope: dict[str, object] = {}
    found: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            try:
                exec(ast.unparse(node), scope)
            except ImportError as error:
                found.append(str(error))
    for node in nodes:
        if isinstance(node, ast.Attribute):
            owner = imported(node.value, scope)
            there = hasattr(owner, node.attr) if ismodule(owner) or isclass(owner) else node.attr in known
            found += [] if there else [ast.unparse(node)]
    return found


def imported(node: ast.expr, scope: dict[str, object]) -> object:
    """The value of an imported name, or of an attribute of one; None for anything else."""
    if isinstance(node, ast.Attribute):
        return getattr(imported(node.value, scope), node.attr, None)
    return scope.get(node.id) if isinstance(node, ast.Name) else None


def attributes(tree: ast.Module) -> set[str]:
    """What classes define (methods and fields), and attributes that are assigned."""
    nodes = [*ast.walk(tree)]
    inside = [each for node in nodes if isinstance(node, ast.ClassDef) for each in node.body]
    names = {each.name for each in inside if isinstance(each, Definition)}
    names |= {each.target.id for each in inside if isinstance(each, ast.AnnAssign)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}


@cache
def attributes_of_ours() -> set[str]:
    """Those of the package, and of the course's solutions, which stand for a learner's file."""
    files = [*(SOURCE / module for module in MODULES), *SOURCE.glob("learn/**/solutions/*.py")]
    return set().union(*(attributes(ast.parse(path.read_text("utf-8"))) for path in files))


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_name_is_somewhere(name):
    assert unknown_names("\n".join(PROGRAMS[name])) == []


@pytest.mark.parametrize("planted", [
    "from glassformer import Masq",
    "glassformer.Masq",
    "learn.shape(block, x)",
    "glassformer.StackConfig.norms",
    "learn.shapes(block, x).down_too(1)",
    "plt.sho()",
])  # fmt: skip
def test_a_name_that_is_nowhere_is_found(planted):
    before = "import glassformer\nimport matplotlib.pyplot as plt\nfrom glassformer import learn\n"
    assert len(unknown_names(before + planted)) == 1
    assert unknown_names(before + "learn.shapes(block, x).down_to(1)\nplt.show()\nglassformer.Mask.of(x)") == []


DOTTED = {it for text in TEXTS.values() for it in INLINE.findall(text) if re.fullmatch(r"glassformer(\.\w+)+", it)}


@pytest.mark.parametrize("name", sorted(DOTTED))
def test_a_documents_dotted_name_is_there(name):
    resolve_name(name)
