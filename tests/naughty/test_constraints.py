"""Naughty strings in what a text is told to be: how it begins, what it never holds, where it stops, what it matches."""

import json
import re
from pathlib import Path

import pytest

from glassformer.decode.constraints import Constraints
from glassformer.decode.stream import Piece
from glassformer.train.finished.use import translate
from glassformer.train.finished.writing import Writer
from glassformer.train.recipe import load_recipe, override

ROOM = 900
"""Tokens that a text may have: more than any of the strings has bytes."""
SOME = pytest.mark.parametrize("step", [40, pytest.param(2, marks=pytest.mark.slow)])
"""Each of these texts is written token by token, so that a push tries some strings."""


@pytest.fixture(scope="module")
def writer(writer_run: Path) -> Writer:
    recipe = load_recipe(writer_run / "recipe.toml")
    return Writer(writer_run, override(recipe, {"decode.max_new_tokens": ROOM, "decode.temperature": 0.0}))


def written(writer: Writer, constraints: Constraints, *stops: str) -> tuple[str, Piece]:
    """The text after an empty prompt, and its last piece."""
    pieces = [*writer.write([""], stops=stops, constraints=constraints)]
    return "".join(each.text for each in pieces), pieces[-1]


@SOME
def test_a_text_matches_a_string(step, texts, writer):
    for each in texts[::step]:
        text, last = written(writer, Constraints(regex=re.escape(each)))
        assert (text, last.end, last.complete) == (each, "eos", True)


@SOME
def test_a_text_is_a_string_in_json(step, strings, writer):
    for each in strings[::step]:
        text, last = written(writer, Constraints(schema=json.dumps({"const": each})))
        assert (json.loads(text), last.end, last.complete) == (each, "eos", True)


@SOME
def test_a_text_begins_with_a_string_and_stops_at_it(step, texts, writer):
    for each in texts[::step]:
        text, last = written(writer, Constraints(begin=each), each)
        assert (text, last.end) == ("", "stop")
        text, last = written(writer, Constraints(begin=f"{each}<"), f"{each}<"[-3:])
        assert last.end == "stop"
        assert f"{each}<".startswith(text)
        assert f"{each}<"[-3:] not in text


@SOME
def test_a_text_never_holds_a_string(step, texts, writer):
    """Even where all but its last character was begun."""
    for each in texts[::step]:
        text, _ = written(writer, Constraints(begin=each[:-1], banned=[each]), "e")
        assert each not in text


@SOME
def test_an_answer_holds_a_string(step, texts, answering_run):
    changes = {"decode.beam": 2, "decode.max_new_tokens": ROOM}
    recipe = override(load_recipe(answering_run / "recipe.toml"), changes)
    for each in [text for text in texts if len(text) < 30][:: step * 4]:
        (found,) = translate(answering_run, iter([(1, "a")]), 1, recipe, constraints=Constraints(forced=[each]))
        assert each in found.text
