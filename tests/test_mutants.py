"""Every row of the table of mutants still fits the tree, and the runner tells caught, missed and broken apart."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from mutant_runner import Mutant, main, misfits
from mutants import FILES, ROWS


@pytest.mark.parametrize("name", FILES)
def test_rows_fit_the_tree(name):
    """A test for each file of rows, because one for each row takes longer than what it asks."""
    module = import_module(f"mutant_rows.{name}")
    rows = [*module.ROWS, *getattr(module, "BROWSER", []), *getattr(module, "UNIT", [])]  # also if none is here
    assert rows
    assert {row.name: found for row in rows if (found := misfits(row))} == {}


def test_names_are_unique():
    names = [mutant.name for mutant in ROWS]
    assert sorted(names) == sorted(set(names))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A tree with one function, one test of it that bites and one that does not."""
    for name, text in {
        "pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['src']\n",
        "src/glassformer/__init__.py": "",
        "src/glassformer/sums.py": "def add(a, b):\n    return a + b  # the sum\n",
        "tests/test_sharp.py": "from glassformer.sums import add\n\ndef test_add():\n    assert add(1, 2) == 3\n",
        "tests/test_blunt.py": "from glassformer.sums import add\n\ndef test_add():\n    add(1, 2)\n",
        "tests/test_red.py": "def test_red():\n    assert False\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def minus(tests: str, after: str = "a - b") -> Mutant:
    return Mutant("minus", "sums.py", "a + b", after, tests)


def test_runner_tells_caught_from_missed(project, capsys):
    rows = [
        minus("tests/test_sharp.py"),
        minus("tests/test_blunt.py"),
        Mutant("no such name", "sums.py", "def add", "def sum", "tests/test_sharp.py"),
    ]
    assert main(rows, ["-j", "1"], project) == 3
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["caught", "MISSED", "BROKEN"]
    assert "tests/test_sharp.py::test_add" in lines[0]
    assert lines[3].startswith("3 mutants: 1 caught, 2 not")
    assert "a + b" in (project / "src/glassformer/sums.py").read_text(), "the tree itself is never touched"


def test_all_caught_is_success(project, capsys):
    assert main([minus("tests/test_sharp.py")], [], project) == 0
    assert "1 mutants: 1 caught, 0 not" in capsys.readouterr().out


def test_red_tests_catch_nothing(project, capsys):
    assert main([minus("tests/test_red.py")], [], project) == 2
    assert "fail without any mutant" in capsys.readouterr().out


def test_unknown_name(project, capsys):
    assert main([minus("tests/test_sharp.py")], ["-k", "plus"], project) == 2
    assert "The closest: minus" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("mutant", "complaint"),
    [
        (minus("tests/test_gone.py"), "test_gone.py does not exist"),
        (minus(""), "names no tests"),
        (minus("tests/test_sharp.py::test_sub"), "tests/test_sharp.py has no test_sub"),
        (minus("tests/test_sharp.py::test_ad[1]"), "tests/test_sharp.py has no test_ad"),
        (minus("tests/test_sharp.py", "a + b"), "changes nothing"),
        (minus("tests/test_sharp.py", "(a + b)"), "the layout only"),
        (minus("tests/test_sharp.py", "a +"), "no Python"),
        (Mutant("x", "sums.py", "a", "b", "tests/test_sharp.py"), "stands 3 times"),
        (Mutant("x", "sums.py", "zzz", "b", "tests/test_sharp.py"), "stands 0 times"),
        (Mutant("x", "gone.py", "a", "b", "tests/test_sharp.py"), "gone.py does not exist"),
    ],
)
def test_misfits_are_named(project, mutant, complaint):
    assert complaint in "; ".join(misfits(mutant, project))
