"""`glassformer learn` as typed: what is printed, the exit codes, and what is written."""

from __future__ import annotations

import csv
import json
import re

import pytest

from glassformer import learn
from glassformer.cli.main import main
from glassformer.learn.course import questions, read_course

COURSE = read_course()


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words: str):
        code = main(["learn", *words])
        out, err = capsys.readouterr()
        return code, out + err

    return run


@pytest.mark.promise
def test_a_first_evening(typed, tmp_path):
    code, out = typed()
    assert code == 0
    assert "Begin with:  glassformer learn 1" in out
    code, out = typed("1")
    assert code == 0
    assert "9 stubs in a new file" in out
    assert json.loads((tmp_path / "course" / "chapter-1.ipynb").read_text("utf-8"))["nbformat"] == 4
    (tmp_path / "course" / "chapter-1.ipynb").write_text("my notes")
    assert "stays as it is" in typed("1")[1]
    assert (tmp_path / "course" / "chapter-1.ipynb").read_text() == "my notes"
    assert typed("1", "--reset")[0] == 0
    assert [path.read_text() for path in (tmp_path / "course/.learn/backup").glob("chapter-1-*")] == ["my notes"]
    code, out = typed("1", "--check")
    assert code == 3
    assert "8 not written" in out
    code, out = typed()
    assert "next: 1.1 Softmax" in out
    hints = [typed("1.1", "--hint")[1].splitlines()[0] for _ in range(4)]
    assert hints == [f"Hint {n} of 3: {COURSE.exercise('1.1').hints[n - 1]}" for n in (1, 2, 3, 3)]
    code, out = typed("1.1", "--solution")
    assert code == 3
    assert "3 of 3 hints" in out
    assert "def softmax" in typed("1.1", "--solution", "--yes")[1]
    assert "1.1" in typed("--report")[1]
    assert json.loads(typed("--report", "--json")[1])["1.1"]["solution"] is True
    assert "What must the sum" not in typed("1.2", "--explain", "--plain")[1]


def test_a_further_page(typed, tmp_path):
    """A page goes into a file of its own, with the same words as a chapter."""
    assert "13 further pages: glassformer learn further" in typed()[1]
    assert "F13 Looking deeper" in typed("further")[1]
    code, out = typed("F4")
    assert code == 0
    assert "2 stubs in a new file" in out
    assert "glassformer learn F4.1 --watch" in out
    folder = tmp_path / "course"
    assert (folder / "chapter-F4.ipynb").is_file()
    path = folder / "further.py"
    right = COURSE.holding("F4").solutions["F4.1"]
    path.write_text(f"import torch\n\n\n{right.replace('back < window', 'back <= window')}")
    code, out = typed("F4", "--check")
    assert code == 3
    assert "1 fails, 1 not written" in out
    assert "off by one: the window has one key too many" in out
    assert typed("F4.1", "--hint")[1].startswith("Hint 1 of 3")
    assert "13 further pages: glassformer learn further; further.py: 0 of 21 exercises done" in " ".join(
        typed()[1].split()
    )
    typed("F4.1", "--reset")
    assert "exercise F4.1" in path.read_text()
    code, out = typed("F13")
    assert "my_transformer.py" in out
    assert "has no MultiHeadAttention, TokenEncoder yet" in out
    assert not (folder / COURSE.file).exists()


@pytest.mark.slow
def test_parts_of_two_files_that_meet_in_one_model_are_of_one_hand(tmp_path, monkeypatch, capsys):
    """Whose attentions a page's model has, and whose function looks for them, does not depend on what is done yet."""
    monkeypatch.chdir(tmp_path)
    further = COURSE.holding("F13")
    further.write(tmp_path, further.solution_file())
    first = tmp_path / COURSE.file
    whole = first.read_text("utf-8")
    for change, whose in ((("class TokenEncoder(", "class Encoder("), "ours, until yours passes exercise 2.8"),
                          (("", ""), "yours")):  # fmt: skip
        first.write_text(whole.replace(*change), "utf-8")
        kind, ablated = learn.mine("TokenEncoder"), learn.mine("ablated")
        assert capsys.readouterr().out == f"TokenEncoder: {whose}\nablated: {whose}\n"
        with ablated(kind(12, 8, 2, 1, 16, 9), 0, 1):
            pass
    (tmp_path / further.file).unlink()
    assert learn.mine("TokenEncoder").__module__ == "learner"
    with learn.mine("ablated")(learn.mine("TokenEncoder")(12, 8, 2, 1, 16, 9), 0, 1):
        pass
    assert "ablated: ours, until yours passes exercise F13.1\nTokenEncoder: yours" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "message"), [
    (["9"], "There is no chapter '9'"),
    (["mine.py"], "To test code of your own: glassformer check mine.py"),
    (["1.1"], "1.1 is an exercise. Add --explain, --watch, --check or --hint; glassformer learn 1 opens its chapter."),
    (["1.99"], "There is no exercise '1.99'"),
    (["1.9", "--check"], "There is no exercise '1.9'"),
    (["--check", "--hint"], "Give one of --check and --hint"),
    (["--hint"], "--hint needs an exercise"),
    (["a.py", "b.py", "--watch"], "To check several files, add --grade"),
    (["--grade"], "--grade needs files"),
    (["--course", "nowhere"], "it has no course.toml"),
    (["--check", "--limit", "0"], "--limit must be a number of seconds"),
])  # fmt: skip
def test_wrong_words_are_named(typed, words, message):
    code, out = typed(*words)
    assert code == 2
    assert message in out


@pytest.mark.parametrize("width", [40, 80])
def test_a_deleted_stub_comes_back(typed, tmp_path, monkeypatch, width):
    """And no line is wider than the terminal; the next command is for the same folder."""
    monkeypatch.setenv("COLUMNS", str(width))
    typed("1", "--into", "mine")
    path = tmp_path / "mine" / COURSE.file
    stub = COURSE.stubs["1.1"].partition("\n")[2]
    path.write_text(path.read_text().replace(stub, ""))
    output = typed("1.1", "--check", "--into", "mine")[1]
    assert "softmax is not in the file; glassformer learn 1 appends its stub" in " ".join(output.split())
    output = typed("1", "--into", "mine")[1]
    assert "1 stub appended below line" in " ".join(output.split())
    assert "Without a stub" not in output
    assert output.endswith("glassformer learn --watch --into mine\n")
    output = typed("2", "--into", "mine")[1]
    assert "Without a stub, because they go on with what you have: 2.1 The mask" in " ".join(output.split())
    assert max(map(len, output.splitlines()[:-1])) <= width
    output = typed("3", "--check", "--into", "mine")[1] + typed("--into", "mine")[1].partition("Go on")[0]
    assert max(map(len, output.splitlines())) <= width


def test_nothing_to_watch(typed):
    assert typed("--watch") == (2, "There is no course/my_transformer.py yet. Begin with:  glassformer learn 1\n")


def test_a_syntax_error_stops_the_stubs(typed, tmp_path):
    typed("1")
    path = tmp_path / "course" / COURSE.file
    path.write_text("def attention(:\n")
    code, out = typed("2")
    assert code == 2
    assert "line 1" in out
    assert path.read_text() == "def attention(:\n"
    code, out = typed("--check")
    assert code == 2
    assert "could not run" in out


def test_grading(typed, tmp_path):
    """Files that hang, crash or are none are rows, never the end."""
    (tmp_path / "good.py").write_text(COURSE.solution_file("1.2"))
    (tmp_path / "hangs.py").write_text("while True:\n    pass\ndef softmax(scores, dim=-1):\n    return scores\n")
    (tmp_path / "broken.py").write_text("def softmax(:\n")
    code, out = typed("--grade", "good.py", "hangs.py", "broken.py", "none.py", "--csv", "--limit", "3")
    rows = list(csv.DictReader(line for line in out.splitlines() if " of " not in line.partition(":")[0]))
    assert [row["file"] for row in rows] == ["good.py", "hangs.py", "broken.py", "none.py"]
    assert [rows[0][number] for number in ("1.1", "1.2", "1.5")] == ["done", "done", "not written"]
    assert [row["1.1"] for row in rows[1:]] == ["could not run", "could not run", "not written"]
    assert "endless loop" in rows[1]["first mistake"]
    assert code == 2
    assert typed("--grade", "good.py")[0] == 0


def test_files_of_further_pages_are_graded_by_their_exercises(typed, tmp_path):
    """They are known by what they define; columns that are no exercises of a file's course stay empty."""
    (tmp_path / "first.py").write_text(COURSE.solution_file("1.1"))
    right = COURSE.holding("F4").solutions["F4.1"]
    (tmp_path / "ada_further.py").write_text(f"import torch\n\n\n{right}")
    code, out = typed("--grade", "first.py", "ada_further.py", "--csv")
    rows = list(csv.DictReader(line for line in out.splitlines() if " of " not in line.partition(":")[0]))
    assert [(row["1.1"], row["F4.1"], row["F4.2"], row["done"]) for row in rows] == [
        ("done", "", "", "1"), ("", "done", "not written", "1")]  # fmt: skip
    assert code == 0


TOML = """
title = "A seminar"
[[exercise]]
id = "A.1"
title = "Attention, again"
names = ["attention"]
properties = ["equation", "softmax"]
statement = "As always."
hints = ["Why?", "Look at the rows.", "`softmax(___)`"]
[[exercise]]
id = "A.2"
title = "Halves"
names = ["halved"]
subject = "my_subjects.py:HALVED"
statement = "halved(x) is half of x."
hints = ["What is half?", "Divide.", "x / ___"]
"""
SUBJECT = """
from glassformer.proof.check.property import Fault, Mistake, Property, Subject, ask

TWICE = Mistake("it doubles", "the number is multiplied", "which way?")

def halves(function):
    given = ask(function, 4.0)
    return None if given == 2.0 else Fault(TWICE, f"of 4 it makes {given}")

HALVED = Subject(lambda thing: thing, [Property("half", "half of what came in", halves)])
"""
PLANTED = """
[[mistake]]
exercise = "A.2"
text = "x / 2"
instead = "x * 2"
name = "it doubles"
[[mistake]]
exercise = "A.2"
text = "x / 2"
instead = "x * 3"
name = "it triples"
"""


@pytest.fixture
def seminar(tmp_path):
    folder = tmp_path / "seminar"
    folder.mkdir()
    attention = COURSE.solutions["1.2"].partition("\n")[2].replace("softmax(scores, dim=-1)", "scores.softmax(-1)")
    (folder / "course.toml").write_text(TOML)
    (folder / "my_subjects.py").write_text(SUBJECT)
    (folder / "solutions.py").write_text(
        f"import math\n\n\n# A.1 Attention, again\n{attention}\n\n# A.2 Halves\ndef halved(x):\n"
        '    """What is left of x."""\n    return x / 2\n'
    )
    return folder


def test_a_course_of_ones_own(typed, seminar, tmp_path):
    assert typed("--test", "seminar")[0] == 0
    assert typed("A", "--course", "seminar")[0] == 0
    path = tmp_path / "course" / "my_transformer.py"
    stub = 'def halved(x):\n    """What is left of x."""\n    '
    text = path.read_text()
    assert f'{stub}raise NotImplementedError("exercise A.2")\n' in text
    path.write_text(text.replace(f'{stub}raise NotImplementedError("exercise A.2")', f"{stub}return 2 * x"))
    code, out = typed("A.2", "--check", "--course", "seminar")
    assert code == 3
    assert "half: it doubles" in out


def test_an_unsound_course_is_told(typed, seminar):
    (seminar / "mistakes.toml").write_text(PLANTED)
    (seminar / "course.toml").write_text(TOML.replace("`softmax(___)`", "return weights @ v, weights"))
    code, out = typed("--test", "seminar")
    assert code == 3
    assert "a hint contains a whole line of the solution: return weights @ v, weights" in out
    assert "the mistake 'it triples' is named ['it doubles']" in out
    assert "2 complaints" in out


def test_the_quiz(typed):
    every = questions(COURSE)
    assert len(every) == 20
    assert [
        each.question
        for each in every
        if not each.judged(re.split("[;:]", each.answer)[0] if not each.all_of else each.answer)
    ] == []
    assert not any(each.judged("") or each.judged("I do not know this") for each in every)
    assert typed("--quiz")[0] == 0
