"""The reading path: what a reader is promised of its files, and how few calls lead from the model to its softmax."""

from __future__ import annotations

import ast
import re
import sys

import pytest
import torch

import architecture
from glassformer import ModelConfig, StackConfig, Transformer
from glassformer.nn import attention, backends, transformer

DOCUMENT = (architecture.ROOT / "docs/architecture.md").read_text("utf-8")
PATH = re.findall(r"^\d+\. \[(\S+\.py)\]", DOCUMENT.partition("## Reading path")[2].partition("\n## ")[0], re.MULTILINE)
SEVENTH = "nn/block.py"


def imports(module):
    """What a file imports when it is imported itself."""
    for node in ast.parse((architecture.SOURCE / module).read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            yield node.module


def code_lines(module):
    """Lines that are neither blank, nor a comment, nor part of a docstring."""
    text = (architecture.SOURCE / module).read_text("utf-8")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    skipped = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            skipped |= {*range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    lines = enumerate(text.splitlines(), start=1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") for n, line in lines if n not in skipped)


def test_the_equations_need_nothing_else():
    known = {f"glassformer.{file.removesuffix('.py').replace('/', '.')}" for file in PATH}
    for module in PATH[: PATH.index(SEVENTH) + 1]:
        ours = [name for name in imports(module) if name.startswith("glassformer")]
        assert [name for name in ours if name not in known and not name.startswith("glassformer.base.")] == [], module
        others = {name.partition(".")[0] for name in imports(module)} - {"glassformer", "torch", "jaxtyping"}
        assert others <= sys.stdlib_module_names, module


def test_it_can_be_read_in_a_sitting():
    assert 10 <= len(PATH) <= 14
    assert sum(map(code_lines, PATH)) < 2_500


@pytest.mark.shapes(False)
@pytest.mark.parametrize(
    ("backend", "module", "softmax", "most"),
    [("reference", attention, "softmax_over_readable", (8, 4)), ("auto", backends, "softmax", (9, 6))],
)
def test_few_calls_to_the_softmax(backend, module, softmax, most):
    """Calls of our functions, one inside another, from the body of `Transformer.forward`; the softmax is the last."""
    stack = StackConfig(d_model=32, n_heads=4, n_layers=1, d_ff=64, causal=True, attention=backend)
    model, calls = Transformer(ModelConfig(vocab_size=50, decoder=stack)), []

    def look(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_name == softmax and code.co_filename == module.__file__ and not calls:
            while frame is not None:
                if frame.f_code.co_filename.startswith(str(architecture.SOURCE)):
                    calls.append((frame.f_code.co_filename, frame.f_code.co_name))
                frame = frame.f_back

    sys.setprofile(look)
    try:
        model(torch.tensor([[1, 2, 3]]))
    finally:
        sys.setprofile(None)
    assert calls[-1] == (transformer.__file__, "forward")
    assert (len(calls) - 1, len({file for file, _ in calls})) == most
