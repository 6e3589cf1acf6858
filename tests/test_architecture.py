"""The house rules of `architecture.py` over every file, over planted offences, and what an import may do."""

from __future__ import annotations

import ast
import json
import re
import runpy
import tomllib

import jaxtyping
import pytest
import torch

import architecture as rules
import glassformer
from fresh import python
from glassformer.nn.attention import reference

TESTS = sorted(path for folder in ("tests", "benchmarks") for path in (rules.ROOT / folder).rglob("*.py"))
ASSETS = sorted(path for kind in ("js", "css", "html") for path in rules.SOURCE.rglob(f"*.{kind}"))
NAMES = [module.removesuffix(".py").replace("/", ".").removesuffix(".__init__") for module in rules.MODULES]
DOTTED = ["glassformer" if name == "__init__" else f"glassformer.{name}" for name in NAMES if name != "__main__"]


@pytest.mark.promise
@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_house_rule(rule):
    """Over all files in one test, because a test for each file and rule takes longer than the rules themselves."""
    complaints = [f"src/glassformer/{of}: {each}" for of in rules.MODULES for each in rule(of, source(of))]
    assert not complaints, "\n".join([str(rule.__doc__), *complaints])


def test_file_lengths():
    long = {path: rules.too_long(path.name, path.read_text("utf-8")) for path in (*TESTS, *ASSETS)}
    assert {str(path): complaints for path, complaints in long.items() if complaints} == {}


def test_functions_are_short():
    lengths = [each for module in rules.MODULES for each in rules.function_lengths(module, source(module))]
    long = sorted(each for each in lengths if each[0] > 40)
    shown = "\n".join(f"{lines} lines: src/glassformer/{where}" for lines, where in long)
    assert len(long) <= 0.05 * len(lengths), f"{len(long)} of {len(lengths)} functions pass 40 lines:\n{shown}"


def test_no_import_circles():
    """No module leads back to itself, imports inside functions and for types alone included."""
    found = rules.circles(rules.import_graph({module: source(module) for module in rules.MODULES}))
    assert [sorted(ring) for ring in found] == []


def test_import_circles_are_seen():
    texts = {
        "a.py": "from glassformer.b import x",
        "b/__init__.py": "def f():\n    from glassformer.b.c import y",
        "b/c.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import glassformer.a",
        "d.py": "from glassformer import a, __version__",
        "__init__.py": "from glassformer import d",
    }
    assert rules.circles(rules.import_graph(texts)) == [{"a.py", "b/__init__.py", "b/c.py"}]


def test_the_picture_shows_the_house_as_it_is():
    """The arrows of docs/pictures/house.svg are those that the imports give today; else: make house."""
    drawn = runpy.run_path(str(rules.ROOT / "docs" / "house.py"))
    now = {f"{name}-{other}" for name, others in drawn["shortest"](drawn["above"]()).items() for other in others}
    picture = (rules.ROOT / "docs" / "pictures" / "house.svg").read_text("utf-8")
    assert {*re.findall(r'class="(\w+-\w+)"', picture)} == now
    assert {*re.findall(r">(\w+)</text>", picture)} - {*"012345678"} == drawn["above"]().keys()


def test_an_arrow_that_another_path_implies_is_left_out():
    shortest = runpy.run_path(str(rules.ROOT / "docs" / "house.py"))["shortest"]
    assert shortest({"c": {"a", "b"}, "b": {"a"}, "a": set()}) == {"c": {"b"}, "b": {"a"}, "a": set()}


def source(module):
    return (rules.SOURCE / module).read_text("utf-8")


INHERITED = """'A module.'
class A:
    'A.'
    def f(self): 'F.'
class B(A):
    'B.'
class C(B):
    'C.'
    def f(self): ...
"""

TASK_CLASS = "from glassformer.train.tasks.pairs import Pairs\n"
# (rule, file it is planted in, text, whether the rule must complain)
PLANTED = [
    (rules.upward_imports, "base/shapes.py", "from glassformer.nn import norm", True),
    (rules.upward_imports, "nn/mask.py", "from glassformer.data.batch import Batch", True),
    (rules.upward_imports, "nn/mask.py", "import glassformer.train.loop", True),
    (rules.upward_imports, "nn/mask.py", "from ..data import batch", True),
    (rules.upward_imports, "nn/deep/rotary.py", "from ...train import loop", True),
    (rules.upward_imports, "nn/mask.py", "def f():\n    from glassformer import train", True),
    (rules.upward_imports, "store/checkpoint.py", "import glassformer", True),
    (rules.upward_imports, "store/checkpoint.py", "from glassformer import Transformer", True),
    (rules.upward_imports, "nn/config.py", "from glassformer.data.batch import Batch", True),
    (rules.upward_imports, "cli/run.py", "from glassformer import Transformer", True),
    (rules.upward_imports, "nn/mask.py", "import_module('glassformer.train.loop')", True),
    (rules.upward_imports, "newcomer/x.py", "", True),
    (rules.upward_imports, "nn/mask.py", "from glassformer.base.shapes import Tensor\nimport torch", False),
    (rules.upward_imports, "nn/deep/rotary.py", "from ..norm import LayerNorm\nfrom . import bias", False),
    (rules.upward_imports, "store/checkpoint.py", "from glassformer import __version__", False),
    (rules.banned_calls, "store/x.py", "import pickle", True),
    (rules.banned_calls, "store/x.py", "def f():\n    from pickle import loads", True),
    (rules.banned_calls, "store/x.py", "import torch\ntorch.load('x', weights_only=True)", True),
    (rules.banned_calls, "store/x.py", "import torch as t\nt.load('x')", True),
    (rules.banned_calls, "store/x.py", "from torch import load as read\nread('x')", True),
    (rules.banned_calls, "store/x.py", "import torch\ntorch.save({}, 'x')", True),
    (rules.banned_calls, "store/x.py", "eval('1')", True),
    (rules.banned_calls, "store/x.py", "exec('1')", True),
    (rules.banned_calls, "store/x.py", "import yaml\nyaml.load('1')", True),
    (rules.banned_calls, "store/x.py", "import numpy\nnumpy.load('x', allow_pickle=True)", True),
    (rules.banned_calls, "store/x.py", "import numpy\nnumpy.load('x', allow_pickle=False)\nmodel.eval()", False),
    (rules.banned_calls, "store/x.py", "from glassformer.store.checkpoint import load\nload('x')", False),
    (rules.compared_tasks, "cli/x.py", "if data.task == TEXT: ...", True),
    (rules.compared_tasks, "cli/x.py", "if layout in ('encoder', 'masked'): ...", True),
    (rules.compared_tasks, "cli/x.py", "KINDS[data.task]", True),
    (rules.compared_tasks, "cli/x.py", "KINDS.get(recipe.data.layout, 1)", True),
    (rules.compared_tasks, "cli/x.py", "LAYOUTS[data.layout]\nown.task != other.task", False),
    (rules.compared_tasks, "train/tasks/x.py", "if data.task == TEXT: ...", False),
    (rules.compared_tasks, "cli/x.py", f"{TASK_CLASS}isinstance(task, (A, Pairs))", True),
    (rules.compared_tasks, "cli/x.py", f"{TASK_CLASS}{{Pairs: 1}}", True),
    (rules.compared_tasks, "cli/x.py", "from glassformer.store.export import Text\nisinstance(x, Text)", False),
    (rules.loud_lines, "train/loop.py", "print('step')", True),
    (rules.loud_lines, "train/loop.py", "import sys\nsys.stderr.write('step')", True),
    (rules.loud_lines, "train/report.py", "print('step')", False),
    (rules.loud_lines, "cli/train.py", "print('step')", False),
    (rules.undocumented, "nn/x.py", "'A.'\nclass A:\n    def f(self): ...", True),
    (rules.undocumented, "nn/x.py", "'A.'\nclass A:\n    'A.'\n    def f(self): ...", True),
    (rules.undocumented, "nn/x.py", "'A.'\ndef f(): ...", True),
    (rules.undocumented, "nn/x.py", "x = 1", True),
    (rules.undocumented, "nn/x.py", "'A.'\ndef _f(): ...\nclass A:\n    'A.'\n    def __len__(self): ...", False),
    (rules.undocumented, "nn/x.py", INHERITED, False),
    (rules.unannotated, "nn/x.py", "def f(x) -> int: ...", True),
    (rules.unannotated, "nn/x.py", "def f(x: int): ...", True),
    (rules.unannotated, "nn/x.py", "def f(*x, **y: int) -> int: ...", True),
    (rules.unannotated, "nn/x.py", "class A:\n    def f(self, x) -> int: ...", True),
    (rules.unannotated, "nn/x.py", "class A:\n    def __init__(self, x) -> None: ...", True),
    (rules.unannotated, "nn/x.py", "class A:\n    @staticmethod\n    def f(x) -> int: ...", True),
    (rules.unannotated, "nn/x.py", "class A:\n    def f(self, x: int) -> int:\n        def g(y): ...", False),
    (rules.unfinished, "nn/x.py", "x = 1  # TODO", True),
    (rules.unfinished, "nn/x.py", "x = 1  # the todo list of the user", False),
    (rules.too_long, "nn/x.py", "\n" * 601, True),
    (rules.too_long, "nn/x.py", "\n" * 600, False),
]


@pytest.mark.parametrize(("rule", "module", "text", "offends"), PLANTED)
def test_rule_sees_what_is_planted(rule, module, text, offends):
    assert bool(rule(module, text)) == offends


def test_long_functions_are_measured():
    text = "def short():\n    pass\n\ndef long():\n" + "    pass\n" * 40
    assert [lines for lines, _ in rules.function_lengths("x.py", text)] == [2, 41]


# --- what an import may do

WITHOUT_TORCH = (
    "glassformer", "glassformer.cli.main", "glassformer.data.config", "glassformer.base.errors",
    "glassformer.base.registry", "glassformer.nn.config", "glassformer.nn.presets", "glassformer.train.recipe",
)  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_TORCH)
def test_import_does_not_import_torch(name):
    """`--help`, recipes and errors answer at once."""
    code = f"import sys, {name}; print(*sorted({{'torch', 'tokenizers', 'sacrebleu'}} & {{*sys.modules}}))"
    assert run_python(code).split() == []


def run_python(code: str, *arguments: str) -> str:
    """What a fresh interpreter prints for `code`, which complains of nothing."""
    answer = python("-c", code, *arguments, cwd=rules.ROOT)
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr == ""
    return answer.stdout


# Third-party packages come first (rich draws a random number, torch reads the environment), so that only what our own
# modules do is seen. Each module is imported by itself and blamed by name.
IMPORT_ALL = """
import contextlib, importlib, io, json, logging, os, random, signal, sys, warnings
import numpy, rich.progress, sacrebleu, safetensors.torch, tokenizers, torch, torch.utils.data

def state():
    return {
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "default dtype and device": [str(torch.get_default_dtype()), str(torch.get_default_device())],
        "gradients": [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()],
        "determinism": torch.are_deterministic_algorithms_enabled(),
        "precision": [torch.get_float32_matmul_precision(), torch.backends.mkldnn.matmul.fp32_precision],
        "autocast": [torch.is_autocast_enabled("cpu"), str(torch.get_autocast_dtype("cpu"))],
        "random numbers": [hash(torch.get_rng_state().numpy().tobytes()), hash(random.getstate()),
                           hash(numpy.random.get_state()[1].tobytes())],
        "logging": [logging.root.level, len(logging.root.handlers), logging.raiseExceptions],
        "warning filters": len(warnings.filters),
        "modules of torch": sum(each.startswith("torch.") for each in sys.modules),  # they may change what is above
        "environment": sorted(os.environ.items()),
        "signals": [str(signal.getsignal(each)) for each in (signal.SIGINT, signal.SIGTERM)],
        "working folder": os.getcwd(),
    }

blamed = {}
for name in sys.argv[1:]:
    before, heard, failed = state(), io.StringIO(), []
    try:
        with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard):
            importlib.import_module(name)
    except Exception as error:
        failed = [f"{type(error).__name__}: {error}"]
    after = state()
    changed = [key for key in before if before[key] != after[key]]
    blamed[name] = failed + changed + ([f"printed {heard.getvalue()!r}"] if heard.getvalue() else [])
print(json.dumps(blamed))
"""


@pytest.fixture(scope="session")
def import_effects() -> dict[str, list[str]]:
    """What importing each module changed, found in one fresh interpreter."""
    return json.loads(run_python(IMPORT_ALL, *DOTTED))


@pytest.mark.parametrize("name", DOTTED)
def test_import_does_nothing(name, import_effects):
    assert import_effects[name] == []


def test_import_effects_are_seen(tmp_path):
    (tmp_path / "guilty.py").write_text("import torch\ntorch.set_num_threads(7)\ntorch.rand(1)\nprint('hello')\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + IMPORT_ALL
    assert json.loads(run_python(code, "guilty"))["guilty"] == ["threads", "random numbers", "printed 'hello\\n'"]


@pytest.mark.shapes(True)
def test_shapes_are_executed():
    """The annotations of src are checked while tests run; without the option in pyproject.toml they would be prose."""
    q, k = torch.rand(2, 3, 5, 4), torch.rand(2, 3, 5, 7)
    with pytest.raises(jaxtyping.TypeCheckError, match="reference"):
        reference(q, k, k, glassformer.Mask(), scale=1.0)


def test_who_cites_or_installs_finds_this_version():
    """CITATION.cff, the changelog and the classifiers agree with the package and with what is tested."""
    cited = re.search(r"^version: (.*)$", (rules.ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert cited[1] == glassformer.__version__
    section = f"## {glassformer.__version__} "
    assert section in (rules.ROOT / "CHANGELOG.md").read_text("utf-8")
    project = tomllib.loads((rules.ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    kinds = {each.rpartition(" :: ")[0] for each in project["classifiers"]}
    assert {"Operating System :: POSIX", "Programming Language :: Python :: 3"} <= kinds
    least = project["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {least}" in project["classifiers"]


def test_source_distribution_holds_what_the_tests_read():
    """An sdist from which the tests cannot be run is half of one."""
    settings = tomllib.loads((rules.ROOT / "pyproject.toml").read_text("utf-8"))
    included = settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {"/.ci", "/benchmarks", "/docs", "/src", "/tests", "/Makefile", "/constraints.txt", "/*.md"} <= {*included}


# --- the public names


@pytest.mark.parametrize("name", glassformer.__all__)
def test_public_name_resolves(name):
    assert getattr(glassformer, name).__doc__ or name.isupper()


def test_public_names_agree():
    """The list, the lazy table and what type checkers are told are the same names from the same files."""
    result = {
        alias.asname: node.module
        for node in ast.walk(ast.parse(source("__init__.py")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert result == glassformer._HOMES
    assert sorted(result) == sorted(glassformer.__all__)


def test_unknown_public_name():
    with pytest.raises(AttributeError, match="no attribute 'Transfomer'"):
        _ = glassformer.Transfomer
