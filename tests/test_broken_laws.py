"""Each row of `tests/broken` aims at what is there and names tests that are there; the runner tells verdicts apart."""

import importlib.util
import re
from pathlib import Path

import pytest

from broken_laws import ROOT, all_rows, judge, main, name_of

ROWS = all_rows()


def aim(row):
    """What stands where a row aims, as it is written there."""
    module, _, path = row.target.partition(":")
    *owners, name = path.split(".")
    owner = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    return vars(owner)[name]


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_a_row_aims_at_what_is_there(row):
    assert row(aim(row)) is not aim(row)
    for test in row.tests:
        file, _, name = test.partition("::")
        assert (ROOT / file).exists()
        assert not name or re.search(rf"^def {name}\b", (ROOT / file).read_text("utf-8"), re.M), test


def test_laws_are_few_and_have_names_of_their_own():
    assert len(ROWS) <= 300
    assert len({name_of(row) for row in ROWS}) == len(ROWS)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A tree with one function, one test of it that bites and one that does not."""
    for name, text in {
        "pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['src']\n",
        "src/sums.py": "def add(a, b):\n    return a + b\n",
        "tests/test_sharp.py": "from sums import add\n\ndef test_add():\n    assert add(1, 2) == 3\n",
        "tests/test_blunt.py": "from sums import add\n\ndef test_add():\n    add(1, 2)\n",
        "tests/test_red.py": "def test_red():\n    assert False\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def sums_are_differences(folder: Path, test: str):
    """A row as they are written, in a file of its own."""
    path = folder / "rows.py"
    path.write_text(
        "from law import breaks\n\n"
        f"@breaks('sums:add', 'tests/test_{test}.py')\n"
        "def sums_are_differences(original):\n    return lambda a, b: original(a, -b)\n"
    )
    spec = importlib.util.spec_from_file_location("rows", path)
    rows = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rows)
    return rows.sums_are_differences


@pytest.mark.parametrize(("test", "code", "word"), [("sharp", 0, "caught"), ("blunt", 3, "MISSED"), ("red", 3, "mend")])
def test_the_runner_tells_caught_from_missed(project, capsys, test, code, word):
    assert main([sums_are_differences(project, test)], ["-j", "1"], project) == code
    assert word in capsys.readouterr().out


def test_a_row_without_its_tests_proves_nothing(project):
    assert judge(sums_are_differences(project, "gone"), project).word == "BROKEN"


def test_an_unknown_row_is_refused(capsys):
    assert main(ROWS, ["-k", "no such law"]) == 2
    assert "None of" in capsys.readouterr().out
