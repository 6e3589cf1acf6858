"""A run that searches for texts: prompt and text share its context, and a text is the best that the beam finds."""

from pathlib import Path

import pytest

from glassformer.base.errors import ConfigError, TooLongError
from glassformer.data.tokens.vocabulary import BOS
from glassformer.decode.answer import CONTEXTS, REQUESTED
from glassformer.decode.beam import beam_search
from glassformer.decode.constraints import Constraints
from glassformer.decode.filters import filters_of
from glassformer.decode.settings import BeamSettings
from glassformer.decode.stream import Piece
from glassformer.train.finished import writing
from glassformer.train.finished.writing import Guessing, Room, Writer
from train.finished.test_writing import WINDOW, of_run, text_run, texts


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return text_run(tmp_path_factory.mktemp("searching"), documents=True)


def searching(run: Path, **decode: object) -> Writer:
    return Writer(run, of_run(run, **{"temperature": 0.0, "beam": 4, **decode}))


def test_texts_are_those_of_the_search(run):
    """With the special tokens around a text, without those that are in none, and with its settings of a beam."""
    writer = searching(run, max_new_tokens=5, length_penalty=2.0, min_new_tokens=2)
    pieces = [*writer.write(["ab", "c"], n=3)]
    prompts = [[BOS, *writer.tokenizers.target.encode(each)] for each in ("ab", "c")]
    settings, filters = BeamSettings(beam=4, length_penalty=2.0), filters_of(writer.recipe.decode)
    given = {"prompts": prompts, "max_new_tokens": 5, "n_best": 3, "never": writer.never(), "filters": filters}
    found = beam_search(writer.model, settings, **given)
    best = [each for answers in found for each in answers]
    assert texts(pieces) == [writer.tokenizers.target.decode(each.ids) for each in best]
    assert [each.score for each in pieces] == pytest.approx([each.score for each in best], abs=1e-6)
    assert [each.row for each in pieces] == [*range(6)]


def test_prompt_and_text_share_the_context(run):
    """The last token is not read, so one more fits; what was asked for is not cut in silence."""
    prompt, room = "abc", WINDOW + 1 - 4
    for requested in (None, room):
        (piece,) = searching(run, max_new_tokens=requested, min_new_tokens=99).write([prompt])
        assert (piece.tokens, piece.end) == (room, "max_new_tokens")
    message = (
        rf"together, at most {WINDOW} tokens here \(data.window\); prompt 2 has 4, which leaves room for {room}; got "
        rf"max_new_tokens={room + 1}. Set max_new_tokens={room} or less, or shorten the prompt. With --crop its end is"
    )
    with pytest.raises(TooLongError, match=message):
        list(searching(run, max_new_tokens=room + 1).write(["a", prompt]))
    most = rf"so a text may have at most {WINDOW}; got max_new_tokens=99\. Set max_new_tokens={WINDOW} or less\.$"
    for crop in (True, False):
        with pytest.raises(TooLongError, match=most):
            list(searching(run, max_new_tokens=99).write(["a", "abc" * crop], crop=crop))
    with pytest.raises(ConfigError, match=r"a text may have 5 \(what the prompt leaves of the context\). Shorten the"):
        list(searching(run, max_new_tokens=None).write([prompt], constraints=Constraints(begin="abcabc")))


@pytest.mark.parametrize(("requested", "read"), [(None, WINDOW - WINDOW // 4), (3, WINDOW - 2), (WINDOW, 1)])
def test_a_prompt_is_cropped_so_that_its_text_fits(run, requested, read):
    writer, long = searching(run, max_new_tokens=requested, min_new_tokens=99), "abc abd bca" * 3
    seen: list[list[int]] = []
    writer.model.decoder.embedding.register_forward_hook(lambda module, given, _: seen.append(given[0][0].tolist()))
    (piece,) = writer.write([long], crop=True)
    assert seen[0] == writer.tokenizers.target.encode(long)[-read:]
    assert piece.tokens == (requested or WINDOW + 1 - read)
    with pytest.raises(TooLongError, match="With --crop"):
        list(writer.write([long]))


@pytest.mark.parametrize("usual", [200, 2])
def test_a_crop_leaves_room_however_long_the_prompt_is(run, usual, monkeypatch):
    """Without a number of tokens, too; a prompt that leaves as much is read as a whole."""
    monkeypatch.setattr(writing, "USUAL_TOKENS", usual)
    least = min(usual, WINDOW // 4 + 1)
    writer = searching(run, min_new_tokens=99)
    for letters in range(1, 2 * WINDOW):
        read, _ = Room(WINDOW, WINDOW // 4, "").fitted([*range(1 + letters)], 1, None, usual, crop=True)
        assert len(read) == min(1 + letters, WINDOW + 1 - least)
        (piece,) = writer.write([("ab" * letters)[:letters]], crop=True)
        expected = max(least, min(usual, WINDOW + 1 - (1 + letters)))
        assert (piece.tokens, piece.limit) == (expected, REQUESTED if expected == usual else CONTEXTS)


def test_what_limits_a_text_is_told_of_the_texts_that_it_ends(run):
    for requested, name in ((None, CONTEXTS), (3, REQUESTED)):
        pieces = [*searching(run, max_new_tokens=requested, batch_size=1).write(["ab", "abc"], n=3, stops=["d"])]
        assert {each.end for each in pieces} > {"max_new_tokens"}
        assert [each.limit for each in pieces] == [name * (each.end == "max_new_tokens") for each in pieces]


def test_texts_before_a_prompt_without_one_are_written(run):
    """Of one batch, too: a context that is full can hold nothing more."""
    written: list[Piece] = []
    with pytest.raises(ConfigError, match="none of the text of prompt 3 did within its 2 tokens"):
        written.extend(
            searching(run, batch_size=9).write(["a", "b", "abcabc", "c"], 2, constraints=Constraints(forced=["dab"]))
        )
    assert [each.row for each in written] == [0, 1, 2, 3]


def test_forced_texts_and_stops(run):
    constraints = Constraints(forced=["da"])
    for piece in searching(run, max_new_tokens=7).write(["a"], n=2, stops=["c"], constraints=constraints):
        assert "da" in piece.text
        assert "c" not in piece.text
    with pytest.raises(ConfigError, match="Forced texts need a beam of at least 2"):
        next(Writer(run, of_run(run)).write(["a"], constraints=constraints))
    with pytest.raises(ConfigError, match="none of the text of prompt 1 did within its 2 tokens"):
        list(
            searching(run, max_new_tokens=2, batch_size=1).write(
                ["d", "b"], constraints=Constraints(forced=["dab"], begin="d")
            )
        )


def test_what_a_search_does_not_take(run):
    with pytest.raises(ConfigError, match=r"got guesses with decode\.beam=4\. Remove the guesses"):
        Writer(run, of_run(run, temperature=0.0, beam=4), Guessing(lookup=2))
    with pytest.raises(ConfigError, match="n_best must be from 1 to beam=4; got n_best=5"):
        next(searching(run, max_new_tokens=3).write(["a"], n=5))


def test_it_asks_whether_to_go_on(run):
    calls: list[int] = []
    pieces: list[Piece] = [*searching(run, max_new_tokens=4).write(["a"], poll=lambda: calls.append(1))]
    assert len(pieces) == 1
    assert calls
