"""What a run wrote at its evaluations: the newest, in order, as the files have it."""

from __future__ import annotations

from glassformer.lens.server.samples import LONGEST, MOST, samples
from lens.server.asked import ask


def wrote(run, step, text):
    """A file as training writes it."""
    (run / "samples").mkdir(exist_ok=True)
    (run / "samples" / f"step-{step:09d}.txt").write_bytes(text.encode() if isinstance(text, str) else text)


def test_the_newest_in_order(tmp_path):
    assert samples(tmp_path) == []
    for step in range(MOST + 3, 0, -1):
        wrote(tmp_path, step, f"text {step}\n")
    (tmp_path / "samples" / "step-x.txt").write_text("another's")
    (tmp_path / "samples" / "step-000000099.txt").mkdir()
    found = samples(tmp_path)
    assert [each.step for each in found] == [*range(5, MOST + 4)], "a folder is no sample"
    assert found[-1] == (MOST + 3, f"text {MOST + 3}", False)


def test_a_long_one_is_cut_and_says_so_and_bytes_that_are_none_are_shown(tmp_path):
    wrote(tmp_path, 1, "x" * LONGEST)
    wrote(tmp_path, 2, "x" * (LONGEST + 1))
    wrote(tmp_path, 3, b"a\xffb")
    assert [(len(each.text), each.cut) for each in samples(tmp_path)[:2]] == [(LONGEST, False), (LONGEST, True)]
    assert samples(tmp_path)[2].text == "a\ufffdb"


def test_they_are_told_of(app):
    assert ask(app, "GET", "/api/samples").json == {"samples": []}
    assert ask(app, "GET", "/api/samples", token="another").status == 403
