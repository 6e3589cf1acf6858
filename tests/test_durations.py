"""Of each test the quickest case stays in the push tier, and the list of the others names none that is gone."""

import ast

import durations

ROOT = durations.LIST.parents[1]


def test_the_quickest_case_stays_unless_even_it_takes_long():
    measured = [(0.1, "a.py::t[1]"), (0.2, "a.py::t[2]"), (9.0, "a.py::t[3]"), (2.0, "a.py::u"), (4.0, "a.py::v[1]")]
    assert durations.chosen(measured, case=0.15, test=3.0) == ["a.py::t[2]", "a.py::t[3]", "a.py::v[1]"]


def test_the_list_names_tests_that_are_there():
    """Else a test that was renamed is in the push tier again, and nobody notices: run `make slow`."""
    listed = {name.split("[")[0] for name in durations.LIST.read_text("utf-8").splitlines()}
    assert listed == {name for name in listed if name.split("::")[1] in names_in(name.split("::")[0])}


def names_in(path: str) -> set[str]:
    file = ROOT / path
    tree = ast.parse(file.read_text("utf-8")) if file.is_file() else ast.Module([], [])
    return {each.name for each in ast.walk(tree) if isinstance(each, (ast.FunctionDef, ast.ClassDef))}
