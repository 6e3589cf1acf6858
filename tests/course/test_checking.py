"""Checks of a learner's file: what each kind of bad file is called, and that none of them ends or holds up ours."""

from __future__ import annotations

import json
import os

import pytest

from glassformer.learn.checking import Checker, warmed
from glassformer.learn.course import read_course
from glassformer.learn.watch import watching
from glassformer.learn.workspace import Workspace

COURSE = read_course()
RIGHT = COURSE.solution_file("1.2")
HEAD = "import math\nimport torch\nfrom torch import nn\n"


@pytest.fixture(scope="module")
def run():
    if not hasattr(os, "fork"):
        pytest.skip("checks without fork start Python anew, which takes seconds each")
    return warmed()


@pytest.fixture
def checked(tmp_path, run):
    def check(text: str, *numbers: str, limit: float = 60.0):
        path = tmp_path / COURSE.file
        path.write_text(text, "utf-8")
        return Checker(COURSE, path, limit, run).check([COURSE.exercise(each) for each in numbers])

    return check


def test_done_and_not(checked):
    found = checked(RIGHT.replace("/ e.sum(dim, keepdim=True)", "/ e.sum()"), "1.1", "1.2", "1.5")
    states = {number: (each.state, each.why) for number, each in found.verdicts.items()}
    assert states["1.1"] == ("fails", "the softmax runs over all entries")
    assert states["1.5"] == ("not written", "split_heads is not in the file; glassformer learn 1 appends its stub")
    assert found.exit_code == 3
    assert checked(RIGHT, "1.1", "1.2").exit_code == 0


@pytest.mark.parametrize(("text", "message"), [
    ("def softmax(:\n    pass\n", "line 1: invalid syntax"),
    ("def softmax(scores, dim=-1):\n    return scores\nexit()\n", "ends the program"),
    ("import os\ndef softmax(scores, dim=-1):\n    return scores\nos._exit(7)\n", "exit code 7"),
    ("def softmax(scores, dim=-1):\n    return scores\n1 / 0\n", "ZeroDivisionError"),
    ("def softmax(scores, dim=-1):\n    return scores\nwhile True:\n    pass\n", "endless loop"),
    ("\0", "Python"),
])  # fmt: skip
def test_a_file_that_cannot_be_run_is_named(checked, text, message):
    found = checked(text, "1.1", limit=3.0)
    assert message in found.problem
    assert found.exit_code == 2
    assert COURSE.file in found.problem


def test_a_part_that_hangs_is_named_with_its_line(checked):
    text = (
        RIGHT
        + "\n\ndef split_heads(x, n_heads):\n    while True:\n        pass\n\n\ndef merge_heads(x):\n    return x\n"
    )
    found = checked(text, "1.1", "1.5", "1.2", limit=3.0)
    assert found.verdicts["1.1"].done
    assert found.verdicts["1.5"].state == "stopped"
    assert "endless loop" in found.verdicts["1.5"].why
    assert "in line" in found.verdicts["1.5"].why
    assert "not reached" in found.verdicts["1.2"].why


def test_a_part_that_ends_the_program_is_named(checked):
    found = checked("def softmax(scores, dim=-1):\n    exit()\n", "1.1")
    assert found.verdicts["1.1"].state == "stopped"
    assert "SystemExit" in found.verdicts["1.1"].why


def test_renamed_twice_and_borrowed(checked):
    renamed = checked(RIGHT.replace("def attention", "def attention_of"), "1.2").verdicts["1.2"]
    assert renamed.why == "attention is not in the file; there is attention_of: was it renamed?"
    assert (
        checked(RIGHT + RIGHT.partition("\n\n\n")[2], "1.1")
        .remarks[0]
        .startswith("softmax is defined 2 times, in lines")
    )
    borrowed = checked(HEAD + "def softmax(scores, dim=-1):\n    return torch.softmax(scores, dim)\n", "1.1").verdicts[
        "1.1"
    ]
    assert (borrowed.state, borrowed.why) == ("not own", "torch.softmax does the work; write it yourself")


def test_a_verdict_is_kept_until_its_code_changes(tmp_path):
    requests: list[str] = []

    def run(words, limit):
        requests.append(words[2])
        rows = [{"exercise": number, "state": "done", "why": "", "pieces": []} for number in words[2].split(",")]
        with open(os.path.join(words[3], "verdicts.jsonl"), "w") as file:  # noqa: PTH118, PTH123
            file.writelines(json.dumps(row) + "\n" for row in [*rows, {"end": True}])
        return 0

    path = tmp_path / COURSE.file
    path.write_text(RIGHT)
    checker = Checker(COURSE, path, run=run)
    exercises = [COURSE.exercise("1.1"), COURSE.exercise("1.2")]
    checker.check(exercises)
    path.write_text(RIGHT + "\n# a remark\n")
    checker.check(exercises)
    path.write_text(RIGHT.replace("q.size(-1)", "8"))
    checker.check(exercises)
    path.write_text(RIGHT.replace("e.sum(dim, keepdim=True)", "1"))
    checker.check(exercises)
    assert requests == ["1.1,1.2", "1.2", "1.1,1.2"]


def test_watch(tmp_path, run):
    """From the first screen to the next exercise, with what held before and no longer does."""
    place = Workspace(COURSE, tmp_path)
    place.add_stubs("1")
    text = place.path.read_text()
    watch, screen = watching(place, Checker(COURSE, place.path, run=run), 80, None)
    assert "1.1 Softmax" in screen
    assert "still a stub" in screen
    sleeps: list[float] = []
    assert watch.look(sleeps.append) is None
    right = COURSE.solutions["1.1"]
    place.path.write_text(text.replace(COURSE.stubs["1.1"].rstrip(), right.rstrip()))
    saved = watch.look(sleeps.append)
    assert saved is not None
    assert "done" in saved
    assert "n next: 1.2 Attention" in saved
    assert sleeps
    assert "1.2 Attention" in (watch.press("n") or "")
    wrong = right.replace("e.sum(dim, keepdim=True)", "e.sum()")
    place.path.write_text(text.replace(COURSE.stubs["1.1"].rstrip(), wrong.rstrip()))
    lost = (watch.look(sleeps.append) or "").splitlines()
    assert lost[0] == "  FAILS  1.1 held before: the softmax runs over all entries"
    assert place.trails()[0]["1.1"].done
    assert watch.press("x") is None
    watch.place.progress.unlink()
    watch.place.progress.mkdir()
    place.path.write_text(text)
    assert f"NOTE {place.progress}" in " ".join((watch.look(sleeps.append) or "").split())
    watch.place.progress.rmdir()
    assert "1.3" in (watch.press("k") or "")
    assert place.trails()[0]["1.2"].skipped
    assert all(len(line) <= 80 for line in lost)
    watch.width = 40
    assert max(map(len, watch.screen().splitlines())) <= 40
    assert "q quit" in watch.screen()
    watch.keys = False
    assert "q quit" not in watch.screen()
