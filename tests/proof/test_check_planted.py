"""Each classic mistake, planted in a learner's right code, is called by its own name and by no other."""

from __future__ import annotations

import pytest

from glassformer.proof.check.examine import check_file
from glassformer.proof.check.file import names_in
from proof import course_blocks, course_further, course_models, course_training, small_parts, styles
from proof.learners import SOURCES
from proof.planted import FILL, LATE, PLANTED

NAN_SLOPE = "the gradient of an empty row is NaN"
ADDITIVE = 'scores + torch.zeros_like(scores).masked_fill(~mask, float("-inf"))'


def named(tmp_path, kind, source):
    """The mistakes found in one kind of code, and what was not tested."""
    path = tmp_path / "learner.py"
    path.write_text(source, "utf-8")
    [piece] = check_file(path, [kind]).as_json()["pieces"]
    assert piece["problem"] is None
    return {each["mistake"] for each in piece["properties"] if each["state"] == "fails"}, piece["properties"]


@pytest.mark.parametrize("kind", SOURCES)
def test_right_code_passes(tmp_path, kind):
    found, properties = named(tmp_path, kind, SOURCES[kind])
    assert not found
    settings = ("norm-first", "named-activation")  # which the blocks of course_blocks.py have
    untested = [each["property"] for each in properties if each["state"] == "not tested"]
    assert [each for each in untested if each not in settings] == []


@pytest.mark.parametrize(
    ("kind", "mistake", "before", "after"), PLANTED, ids=[f"{k}-{m}-{n}" for n, (k, m, *_) in enumerate(PLANTED)]
)
def test_mistake_is_named(tmp_path, kind, mistake, before, after):
    source = SOURCES[kind]
    assert before in source
    if mistake == LATE:
        source = source.replace(FILL, "scores")
    if mistake == NAN_SLOPE:  # an additive mask, and the empty row repaired after the softmax instead of before it
        source = "\n".join(line for line in source.split("\n") if "torch.where" not in line)
        source = source.replace(FILL, ADDITIVE)
    found, properties = named(tmp_path, kind, source.replace(before, after))
    assert found == {mistake}
    [fault] = [each for each in properties if each["state"] == "fails"]
    assert len(fault["evidence"]) > 10
    assert len(fault["cause"]) > 15
    assert fault["hint"].endswith(("?", "."))


@pytest.mark.parametrize(("kind", "text"), small_parts.RIGHT)
def test_right_code_in_another_style_is_not_blamed(tmp_path, kind, text):
    path = tmp_path / "learner.py"
    path.write_text(text, "utf-8")
    [piece] = check_file(path, names_in(path)).pieces
    assert (piece.name, piece.problem, [each.mistake for each in piece.faults]) == (kind, None, [])


PARTS = [*course_blocks.PARTS, *course_models.PARTS, *course_training.PARTS, *course_further.PARTS, *styles.PARTS]
ROWS = [(part, row) for part in PARTS for row in part.planted]


def names_of(piece):
    return {each.mistake for each in piece.faults}


def examined(tmp_path, part, text):
    """The one piece of the part's kind in a text."""
    path = tmp_path / "learner.py"
    path.write_text(text, "utf-8")
    [piece] = [each for each in check_file(path, names_in(path)[-1:]).pieces if each.name == part.kind]
    return piece


@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part.kind}-{part.style}")
def test_right_part_is_not_blamed(tmp_path, part):
    piece = examined(tmp_path, part, part.text)
    assert (piece.problem, {each.mistake for each in piece.faults if not (each.optional and part in styles.PARTS)}) == (
        None,
        set(),
    )


@pytest.mark.parametrize(("part", "row"), ROWS, ids=[f"{part.kind}-{row[0]}-{n}" for n, (part, row) in enumerate(ROWS)])
def test_mistake_in_a_part_is_named(tmp_path, part, row):
    mistake, *pairs = row
    text = small_parts.replaced(part.text, *zip(pairs[::2], pairs[1::2], strict=True))
    piece = examined(tmp_path, part, text)
    assert (piece.problem, names_of(piece)) == (None, {mistake})
    for each in piece.faults:
        assert len(each.evidence) > 10
        assert len(each.cause) > 15
        assert each.hint.endswith(("?", "."))


def test_counts():
    """How much the tables hold; with `-s` it is printed."""
    right = len(SOURCES) + len(small_parts.RIGHT) + len(PARTS)
    print(f"\n{len(PLANTED) + len(ROWS)} mistakes planted, {right} right variants")
    planted = {(kind, mistake) for kind, mistake, *_ in PLANTED} | {(part.kind, row[0]) for part, row in ROWS}
    assert len(PLANTED) + len(ROWS) > 330
    assert right > 60
    assert len(planted) > 200
