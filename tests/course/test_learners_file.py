"""What the course does with the learner's file: stubs below, copies before, and no line of the learner's ever lost."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from glassformer.base.errors import GlassformerError
from glassformer.learn.course import read_course
from glassformer.learn.source import KEPT, append, read_source, replace, source_of
from glassformer.learn.workspace import Workspace, workspace

COURSE = read_course()
OWN = "# mine\nimport math\n\ndef attention(q, k, v):\n    return v  # for now"
FILES = {
    "nothing": b"",
    "own code": OWN.encode(),
    "windows lines": OWN.replace("\n", "\r\n").encode(),
    "not ASCII": "# größe π\nx = 'ß'\n".encode(),
    "all stubs of another chapter": COURSE.stubs["2.5"].encode(),
}


@pytest.fixture
def place(tmp_path):
    return Workspace(COURSE, tmp_path)


def everywhere(place: Workspace) -> set[bytes]:
    """All lines in the file and in its copies."""
    paths = [place.path, *place.backups.glob("*")] if place.backups.is_dir() else [place.path]
    return {line for path in paths if path.is_file() for line in path.read_bytes().splitlines()}


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
@pytest.mark.parametrize("chapter", "12345")
def test_stubs_stand_below_what_is_there(place, data, chapter):
    place.path.write_bytes(data)
    had = read_source(place.path).names
    added = place.add_stubs(chapter)
    now = place.path.read_bytes()
    assert now.startswith(data)
    assert (b"\r\n" in data) == (b"\r\n" in now)
    ast.parse(now)
    assert {*added} == {name for each in COURSE.within(chapter) for name in each.names} - had
    assert not read_source(place.path).twice
    assert {"torch", "nn", "math"} <= read_source(place.path).names
    assert place.add_stubs(chapter) == []
    assert place.path.read_bytes() == now


@pytest.fixture
def further(tmp_path):
    return Workspace(COURSE.holding("further"), tmp_path)


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_stubs_of_a_further_page_import_from_the_first_file(further, place, data):
    """Only what that file has: without it the stubs wait, and neither file is touched."""
    further.path.write_bytes(data)
    assert further.add_stubs("F1") == ["shift_labels", "greedy_decode"]
    assert further.lacking(further.course.exercise("F1.2"))
    assert not place.path.exists()
    place.path.write_text(COURSE.solution_file(), "utf-8")
    now, first = further.path.read_bytes(), place.path.read_bytes()
    assert now.startswith(data)
    assert further.add_stubs("F1") == ["LanguageModel"]
    assert further.add_stubs("F1") == []
    assert further.path.read_bytes().startswith(now)
    assert place.path.read_bytes() == first
    assert {"EncoderBlock", "causal_mask"} <= read_source(further.path).names
    assert read_source(further.path).beside == [place.path]


def test_a_change_of_the_first_file_changes_what_imports_from_it(further, place):
    place.path.write_text(COURSE.solution_file(), "utf-8")
    further.add_stubs("F13")
    before = read_source(further.path).digest(["ablated"])
    assert read_source(further.path).digest(["ablated"]) == before
    place.path.write_text(place.path.read_text("utf-8") + "\n# later\n", "utf-8")
    assert read_source(further.path).digest(["ablated"]) != before


def test_a_file_that_python_cannot_read_is_left_alone(place):
    place.path.write_text("def attention(q:\n")
    with pytest.raises(GlassformerError, match=r"line 1: .*Python cannot read the file"):
        place.add_stubs("1")
    assert place.path.read_text() == "def attention(q:\n"


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_reset_keeps_what_was_there(place, data):
    place.path.write_bytes(data)
    place.add_stubs("1")
    text = place.path.read_bytes().replace(b'raise NotImplementedError("exercise 1.1")', b"return scores  # mine too")
    place.path.write_bytes(text)
    place.reset(COURSE.exercise("1.1"))
    place.reset(COURSE.exercise("1.2"))
    assert {*text.splitlines()} <= everywhere(place)
    assert b'NotImplementedError("exercise 1.1")' in place.path.read_bytes()
    ast.parse(place.path.read_bytes())


def test_a_save_in_between_is_not_overwritten(place):
    place.path.write_text(OWN)
    source = read_source(place.path)
    place.path.write_text("newer = 1\n")
    with pytest.raises(GlassformerError, match="saved meanwhile"):
        replace(source, place.backups, "attention", "def attention():\n    pass\n")
    assert place.path.read_text() == "newer = 1\n"


def test_copies_are_bounded(place):
    for number in range(KEPT + 5):
        append(place.path, place.backups, f"x = {number}\n")
    assert len([*place.backups.glob("*")]) == KEPT


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_named(place):
    place.folder.chmod(0o500)
    with pytest.raises(GlassformerError, match="cannot be written"):
        place.add_stubs("1")


LOOP = """
import sys
from pathlib import Path
from glassformer.learn.course import read_course
from glassformer.learn.workspace import Workspace
place = Workspace(read_course(), Path(sys.argv[1]))
n = 0
while True:
    place.add_stubs("1")
    place.reset(place.course.exercise("1.1"))
    place.note("1.1", attempts=n)
    n += 1
    print(n, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_twenty_kills_lose_nothing(place):
    """Whatever is killed wherever: every line of the learner's is in the file or in a copy, and the file is Python."""
    place.path.write_text(OWN + "\n\ndef softmax(scores, dim=-1):\n    return scores  # my own\n")
    mine = {*place.path.read_bytes().splitlines()}
    for number in range(20):
        process = subprocess.Popen([sys.executable, "-c", LOOP, str(place.folder)], stdout=subprocess.PIPE, text=True)
        for _ in range(1 + number % 4):
            assert process.stdout.readline()
        process.kill()
        process.wait()
        process.stdout.close()
        assert mine <= everywhere(place)
        ast.parse(place.path.read_bytes())
        trails, remark = place.trails()
        assert not remark
        assert trails["1.1"].attempts >= 0


def test_damaged_progress_is_said_and_begins_again(place):
    place.note("1.1", attempts=3)
    place.progress.write_text("{")
    trails, remark = place.trails()
    assert trails == {}
    assert "damaged" in remark
    assert place.note("1.1", attempts=1).attempts == 1
    assert place.trails()[1] == ""


def test_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert workspace(COURSE).folder == Path("course")
    (tmp_path / ".learn").mkdir()
    assert workspace(COURSE).folder == Path()
    (tmp_path / "file").write_text("")
    with pytest.raises(GlassformerError, match="is a file"):
        workspace(COURSE, Path("file"))


def test_further_pages_go_on_beside_the_first_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    further = COURSE.holding("F3")
    assert workspace(further).folder == Path("course")
    (tmp_path / COURSE.file).write_text("")
    assert workspace(further).folder == Path()


def test_a_chapter_that_is_not_there_is_named_with_all_that_are():
    with pytest.raises(GlassformerError, match=r"no chapter 'F14'.*'5', 'F1'"):
        COURSE.chapter("F14")


def test_what_a_definition_needs():
    source = source_of(
        "import torch\nlimit = 3\ndef a(x):\n    return b(x)\ndef b(y):\n    z = y\n    return torch.relu(z)\n"
    )
    assert [getattr(node, "name", "") for node in source.needed(["a"])] == ["a", "b"]
    assert source.used("a") == ["b"]
    assert source.used("b") == ["torch"]
    changed = source_of(source.text.replace("relu", "exp"))
    assert source.digest(["a"]) != changed.digest(["a"])
    assert source.digest(["a"]) == source_of(source.text + "\n# more\ndef c():\n    pass\n").digest(["a"])


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("import torch.nn.functional as F\ndef attention(q, k, v):\n    return F.scaled_dot_product_attention(q, k, v)",
         "F.scaled_dot_product_attention"),
        ("from glassformer import Attention\ndef attention(q):\n    return Attention(8)(q)", "glassformer.Attention"),
        ("from torch.nn.functional import scaled_dot_product_attention as s\ndef attention(*x):\n    return h(*x)\n"
         "def h(*x):\n    return s(*x)", "torch.nn.functional.scaled_dot_product_attention"),
        ("import torch\ndef attention(q, k, v):\n    return torch.softmax(q @ k.mT, -1) @ v", None),
    ],
)  # fmt: skip
def test_borrowed_work_is_seen(text, call):
    assert source_of(text).borrowed(["attention"], ["scaled_dot_product_attention"]) == call
