"""The course as files: sound, and its solutions pass every exercise that the checker knows."""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path

import pytest

from fresh import printed
from glassformer.base.errors import DataError
from glassformer.learn.checking import Checker
from glassformer.learn.course import read_course
from glassformer.learn.judge import judge
from glassformer.proof.check.examine import SUBJECTS, load
from glassformer.proof.check.file import HOME

COURSE = read_course()
FURTHER = COURSE.holding("further")
BOTH = pytest.mark.parametrize("course", [COURSE, FURTHER], ids=["chapters", "further"])


def test_shape():
    assert [sum(each.chapter == str(n) for each in COURSE.exercises) for n in range(1, 6)] == [8, 9, 6, 9, 7]
    assert sum(each.side for each in COURSE.exercises) == 9
    assert len([each for each in COURSE.exercises if each.experiment]) == 2
    assert [each.number for each in FURTHER.chapters] == [f"F{n}" for n in range(1, 14)]
    assert {each.chapter for each in FURTHER.exercises} == {each.number for each in FURTHER.chapters}


@BOTH
def test_each_exercise_has_a_solution_and_names_files_that_are_there(course):
    for each in course.exercises:
        assert each.id in course.solutions or each.experiment
        for file in each.reads:
            assert (Path(__file__).parents[2] / "src" / "glassformer" / file).is_file(), file


def test_what_further_pages_use_is_written_in_the_chapters():
    written = {name for each in COURSE.exercises for name in each.names}
    assert {name for each in FURTHER.exercises for name in each.uses} <= written
    assert COURSE.holding("F3.1") == COURSE.holding("alibi_bias") == FURTHER
    assert COURSE.holding("1.1") == COURSE.holding("attention") == COURSE.holding("F99") == COURSE
    assert (FURTHER.before, COURSE.before) == (COURSE, None)


@BOTH
def test_a_stub_is_the_signature_and_docstring_of_a_solution(course):
    """With a docstring for every name, no line of a body but the call of the constructor above, and an error."""
    for each in course.exercises:
        solved = {node.name: node for node in ast.parse(course.solutions.get(each.id, "")).body}
        stubs = ast.parse(course.stubs.get(each.id, "")).body
        assert [node.name for node in stubs] == [name for name in each.names if name in solved]
        for node in stubs:
            assert ast.get_docstring(node), node.name
            written, requested = functions(solved[node.name]), functions(node)
            assert {name: ast.unparse(each.args) for name, each in requested.items()} == {
                name: ast.unparse(each.args) for name, each in written.items()
            }
            bodies = {ast.unparse(function.body[-1]) for function in requested.values()} - {"super().__init__()"}
            assert bodies == {f"raise NotImplementedError('exercise {each.id}')"}
            assert all(len(each.body) == 1 + bool(ast.get_docstring(each)) for each in requested.values())


def functions(node):
    """A function by its name, or the methods of a class."""
    found = node.body if isinstance(node, ast.ClassDef) else [node]
    return {each.name: each for each in found if isinstance(each, ast.FunctionDef)}


@BOTH
def test_properties_are_known(course):
    for each in course.exercises:
        subjects = [SUBJECTS[HOME[name]] for name in each.names if name in HOME]
        known = {law.name for subject in subjects for law in subject.properties}
        if len(subjects) == len(each.names):
            assert {*each.properties} <= known, each.id


@BOTH
def test_hints_do_not_contain_the_solution(course):
    for each in course.exercises:
        lines = {line.strip() for line in course.solutions.get(each.id, "").splitlines() if len(line.strip()) > 12}
        text = " ".join(each.hints)
        assert not any(line in text for line in lines), each.id
        assert each.hints[0].endswith(("?", ".")), each.id


@BOTH
def test_no_exercise_is_done_before_it_is_begun(course, tmp_path, monkeypatch):
    """Those that go on with parts that are there: what stands before must leave them open."""
    monkeypatch.syspath_prepend(tmp_path)
    going_on = []
    for before, each in pairwise(course.exercises):
        earlier = course.exercises[: course.exercises.index(each)]
        if each.names and {*each.names} <= {name for one in earlier for name in one.names}:
            things = vars(load(course.write(tmp_path, course.solution_file(before.id))))
            assert not judge(course, each, things, None).done, each.id
            going_on.append(each.id)
    assert going_on == (["2.1", "2.3", "3.4", "4.1", "5.4"] if course is COURSE else [])


@pytest.mark.parametrize(("number", "text", "instead", "why"), [
    ("1.6", "        self.weights = weights.detach()\n", "", "MultiHeadAttention: it neither returns nor keeps"),
    ("2.1", "forward(self, x, mask=None):", "forward(self, x):\n        mask = None",
     "MultiHeadAttention: it takes no"),
])  # fmt: skip
def test_what_an_exercise_adds_must_be_there(tmp_path, number, text, instead, why):
    whole = COURSE.solution_file(number)
    assert text in whole
    path = COURSE.write(tmp_path, whole.replace(text, instead))
    verdict = judge(COURSE, COURSE.exercise(number), vars(load(path)), None)
    assert verdict.state == "not written"
    assert verdict.why.startswith(why)


@pytest.mark.slow
@BOTH
def test_solutions_pass(course, tmp_path):
    """All solutions in one file: no exercise that the checker knows is open, and nothing stands there twice."""
    path = course.write(tmp_path, course.solution_file())
    lines = path.read_text("utf-8").splitlines()
    assert sum(bool(line.strip()) and not line.strip().startswith('"""') for line in lines) <= 280  # of code
    found = Checker(course, path).check([each for each in course.exercises if not each.experiment])
    assert not found.problem
    assert not found.remarks
    assert [(n, it.state, it.why) for n, it in found.verdicts.items() if it.state not in ("done", "waits")] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = 1", "it needs a title and at least one"),
        ("title = 'a'\nspare = 1", "unknown: spare"),
        ("title = 'a'\n[[exercise]]\nid='A.1'\ntitle='t'\nstatement='s'\nhints=['a']\nnames=['x']", "1 hints"),
        ("title = 'a'\n[[exercise]]\nid='A.1'\ntitle='t'\nstatement='s'\nhint=['a']", "'hint' is not known"),
        ("title = 'a'\n[[exercise]]\nid='A.1'\ntitle='t'\nhints=['a','b','c']", "statement is missing"),
        ("title = 'a'\n[[exercise]]\nid='A'\ntitle='t'\nstatement='s'\nnames=['x']\nhints=['a']", "must be CHAPTER"),
        ("title =", "course.toml"),
    ],
)  # fmt: skip
def test_unsound_courses_are_named(tmp_path, text, message):
    (tmp_path / "course.toml").write_text(text, "utf-8")
    with pytest.raises(DataError, match=message):
        read_course(tmp_path)


def test_the_course_is_read_without_torch():
    command = "import sys, glassformer.cli.learn; from glassformer import learn; sys.exit('torch' in sys.modules)"
    printed("-c", command)
